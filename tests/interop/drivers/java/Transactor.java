import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions by Kafka's own client, call by call. A line of standard input is a call, its words
 * apart by tabs; the line written for it is "ok" and the result, or "error", its kind and its text.
 * The calls are those of tests/interop/transactor.py.
 */
public final class Transactor {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long READ_MS = 60_000;

    private final String bootstrap;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, List<Future<?>>> sent = new HashMap<>();
    private final Map<String, KafkaConsumer<String, String>> consumers = new HashMap<>();

    private Transactor(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] words) throws Exception {
        Transactor transactor = new Transactor(words[0]);
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(transactor.answer(line.split("\t", -1)));
        }
    }

    private String answer(String[] call) {
        try {
            List<String> words = new ArrayList<>(List.of("ok"));
            words.addAll(perform(call[0], Arrays.asList(call).subList(1, call.length)));
            return String.join("\t", words);
        } catch (Exception error) {
            String text = (error + " <- " + error.getCause()).replaceAll("\\s", " ");
            return String.join("\t", "error", kindOf(error), text);
        }
    }

    private static String kindOf(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProducerFencedException
                    || cause instanceof InvalidProducerEpochException) {
                return "fenced";
            } else if (cause instanceof TimeoutException) {
                return "timeout";
            } else if (cause instanceof CommitFailedException
                    || cause instanceof InvalidPidMappingException) {
                return "abortable";
            } else if (cause instanceof IllegalStateException
                    || String.valueOf(cause.getMessage()).contains("Invalid transition")) {
                return "illegal";
            }
        }
        return "other";
    }

    private List<String> perform(String verb, List<String> words) throws Exception {
        String name = words.get(0);
        switch (verb) {
            case "producer":
                producers.put(name, producer(words.subList(1, words.size())));
                sent.put(name, new ArrayList<>());
                break;
            case "init":
                producers.get(name).initTransactions();
                break;
            case "begin":
                producers.get(name).beginTransaction();
                break;
            case "send":
                send(name, words);
                break;
            case "flush":
                flush(name);
                break;
            case "commit":
                producers.get(name).commitTransaction();
                sent.get(name).clear();
                break;
            case "abort":
                producers.get(name).abortTransaction();
                sent.get(name).clear();
                break;
            case "offset_of_group":
                sendOffset(name, words);
                break;
            case "positions_of_consumer":
                sendPositions(name, words);
                break;
            case "close":
                producers.remove(name).close(Duration.ZERO);
                break;
            case "consumer":
                consumers.put(name, consumer(words));
                break;
            case "poll":
                return render(consumers.get(name).poll(POLL));
            case "rewind":
                rewind(consumers.get(name));
                break;
            case "leave":
                consumers.remove(name).close();
                break;
            case "read":
                return read(words);
            case "end":
                return List.of(String.valueOf(end(words)));
            case "lookup":
                return List.of(String.valueOf(lookup(words)));
            default:
                throw new IllegalArgumentException(verb);
        }
        return List.of();
    }

    // ---- producers

    private KafkaProducer<String, String> producer(List<String> pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String pair : pairs) {
            String[] parts = pair.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private void send(String name, List<String> words) {
        TopicPartition at = partition(words);
        long timestamp = Long.parseLong(words.get(3));
        for (String value : words.subList(4, words.size())) {
            sent.get(name)
                    .add(
                            producers.get(name)
                                    .send(
                                            new ProducerRecord<>(
                                                    at.topic(),
                                                    at.partition(),
                                                    timestamp,
                                                    (String) null,
                                                    value)));
        }
    }

    private void flush(String name) throws Exception {
        producers.get(name).flush();
        List<Future<?>> futures = new ArrayList<>(sent.get(name));
        sent.get(name).clear();
        for (Future<?> future : futures) {
            future.get();
        }
    }

    @SuppressWarnings("deprecation")
    private void sendOffset(String name, List<String> words) {
        int epoch = Integer.parseInt(words.get(5));
        OffsetAndMetadata offset =
                new OffsetAndMetadata(
                        Long.parseLong(words.get(4)),
                        epoch < 0 ? java.util.Optional.empty() : java.util.Optional.of(epoch),
                        words.get(6));
        TopicPartition at = new TopicPartition(words.get(2), Integer.parseInt(words.get(3)));
        producers.get(name).sendOffsetsToTransaction(Map.of(at, offset), words.get(1));
    }

    private void sendPositions(String name, List<String> words) {
        KafkaConsumer<String, String> consumer = consumers.get(words.get(1));
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition at : consumer.assignment()) {
            positions.put(at, new OffsetAndMetadata(consumer.position(at)));
        }
        producers.get(name).sendOffsetsToTransaction(positions, consumer.groupMetadata());
    }

    // ---- consumers

    private KafkaConsumer<String, String> consumer(List<String> words) {
        Properties more = new Properties();
        more.put("group.id", words.get(1));
        more.put("max.poll.records", words.get(3));
        KafkaConsumer<String, String> consumer = reader("read_committed", more);
        consumer.subscribe(List.of(words.get(2)));
        return consumer;
    }

    private KafkaConsumer<String, String> reader(String isolation, Properties more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed =
                consumer.committed(consumer.assignment());
        for (TopicPartition at : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(at);
            consumer.seek(at, offset == null ? 0 : offset.offset());
        }
    }

    private List<String> read(List<String> words) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(words.get(2)); number++) {
            all.add(new TopicPartition(words.get(0), number));
        }
        Properties more = new Properties();
        more.put("fetch.min.bytes", words.get(3));
        more.put("fetch.max.wait.ms", "100");
        List<String> read = new ArrayList<>();
        long deadline = System.currentTimeMillis() + READ_MS;
        try (KafkaConsumer<String, String> consumer = reader(words.get(1), more)) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            for (TopicPartition at : all) {
                while (consumer.position(at) < ends.get(at)) {
                    if (System.currentTimeMillis() > deadline) {
                        throw new TimeoutException("no end of " + at);
                    }
                    read.addAll(render(consumer.poll(POLL)));
                }
            }
        }
        return read;
    }

    private long end(List<String> words) {
        TopicPartition at = new TopicPartition(words.get(0), 0);
        try (KafkaConsumer<String, String> consumer = reader(words.get(1), new Properties())) {
            return consumer.endOffsets(List.of(at)).get(at);
        }
    }

    private long lookup(List<String> words) {
        TopicPartition at = new TopicPartition(words.get(0), 0);
        long timestamp = Long.parseLong(words.get(2));
        try (KafkaConsumer<String, String> consumer = reader(words.get(1), new Properties())) {
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Collections.singletonMap(at, timestamp)).get(at);
            return found == null ? -1 : found.offset();
        }
    }

    private static List<String> render(Iterable<ConsumerRecord<String, String>> records) {
        List<String> words = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records) {
            words.add(record.partition() + "/" + record.offset() + "/" + record.value());
        }
        return words;
    }

    private static TopicPartition partition(List<String> words) {
        return new TopicPartition(words.get(1), Integer.parseInt(words.get(2)));
    }
}
