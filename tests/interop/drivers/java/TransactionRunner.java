import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions by Kafka's own producer, of 2.8 or newer: arguments and lines are those of all
 * transactors.
 */
public final class TransactionRunner {
    private final KafkaProducer<String, String> producer;

    private TransactionRunner(KafkaProducer<String, String> producer) {
        this.producer = producer;
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new HashMap<>();
        for (int i = 0; i < words.length; i += 2) {
            arguments.put(words[i].substring(2), words[i + 1]);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.put("transactional.id", arguments.get("transactional-id"));
        settings.put("transaction.timeout.ms", Integer.valueOf(arguments.get("timeout-ms")));
        settings.put("request.timeout.ms", 4000);
        settings.put("delivery.timeout.ms", 15_000);
        settings.put("max.block.ms", 10_000);
        settings.put("linger.ms", 2);

        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try {
            TransactionRunner runner =
                    new TransactionRunner(
                            new KafkaProducer<>(
                                    settings, new StringSerializer(), new StringSerializer()));
            again(runner.producer::initTransactions);
            say("ready");
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                runner.run(line.split(" "));
            }
        } catch (KafkaException error) {
            say("failed " + error.toString().replaceAll("\\s+", " "));
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    /** Run a transaction. What it throws ends the producer. */
    private void run(String[] words) throws InterruptedException {
        producer.beginTransaction();
        try {
            write(words[1], Arrays.asList(words).subList(2, words.length));
        } catch (KafkaException error) {
            if (isFatal(error)) {
                throw error;
            }
            again(producer::abortTransaction);
            say("aborted " + error.getClass().getSimpleName());
            return;
        }

        if (words[0].equals("commit")) {
            say("ending");
            again(producer::commitTransaction);
            say("committed");
        } else {
            again(producer::abortTransaction);
            say("aborted");
        }
    }

    private void write(String group, List<String> words) throws InterruptedException {
        Map<String, Future<RecordMetadata>> deliveries = new LinkedHashMap<>();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int i = 0; i < words.size(); i += 4) {
            String topic = words.get(i + 1);
            int partition = Integer.parseInt(words.get(i + 2));
            String value = words.get(i + 3);
            if (words.get(i).equals("w")) {
                deliveries.put(
                        value, producer.send(new ProducerRecord<>(topic, partition, null, value)));
            } else {
                offsets.put(
                        new TopicPartition(topic, partition),
                        new OffsetAndMetadata(Long.parseLong(value)));
            }
        }

        for (Map.Entry<String, Future<RecordMetadata>> delivery : deliveries.entrySet()) {
            try {
                say("written " + delivery.getKey() + " " + delivery.getValue().get().offset());
            } catch (ExecutionException error) {
                throw error.getCause() instanceof KafkaException
                        ? (KafkaException) error.getCause()
                        : new KafkaException(error);
            }
        }
        if (!offsets.isEmpty()) {
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
        }
    }

    private static boolean isFatal(KafkaException error) {
        return error instanceof ProducerFencedException
                || error instanceof OutOfOrderSequenceException
                || error instanceof AuthorizationException
                || error instanceof UnsupportedVersionException;
    }

    /** Call until it is done. A call that took max.block.ms goes on with the next one. */
    private static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                // It may take longer than one call does.
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
