import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group by Kafka's own client, of 2.3 or newer: arguments and lines are those of all
 * drivers. Two more are for benchmarks: the time between heartbeats, and "--commits false". Values
 * must be plain letters, digits and spaces.
 */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final int HEARTBEATS_A_SESSION = 10;
    private static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> ASSIGNORS =
            Map.of(
                    "range", PACKAGE + "RangeAssignor",
                    "roundrobin", PACKAGE + "RoundRobinAssignor",
                    "sticky", PACKAGE + "StickyAssignor",
                    "cooperative-sticky", PACKAGE + "CooperativeStickyAssignor");

    private static volatile boolean isStopped;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final boolean commits;

    /** The offset behind the last message of each partition that is written and not committed. */
    private final Map<TopicPartition, OffsetAndMetadata> progress = new HashMap<>();

    private GroupMember(KafkaConsumer<byte[], byte[]> consumer, boolean commits) {
        this.consumer = consumer;
        this.commits = commits;
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> arguments = new HashMap<>();
        for (int i = 0; i < words.length; i += 2) {
            arguments.put(words[i].substring(2), words[i + 1]);
        }

        Thread main = Thread.currentThread();
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    isStopped = true;
                                    joinQuietly(main);
                                    Runtime.getRuntime().halt(0);
                                }));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(arguments))) {
            List<String> topics = Arrays.asList(arguments.get("topics").split(","));
            boolean commits = !"false".equals(arguments.get("commits"));
            new GroupMember(consumer, commits).consume(topics);
        } catch (KafkaException error) {
            sayError(error);
            Runtime.getRuntime().halt(1);
        }
    }

    private static Properties settings(Map<String, String> arguments) throws IOException {
        int session = Integer.parseInt(arguments.getOrDefault("session-timeout-ms", "10000"));
        String heartbeat = Integer.toString(session / HEARTBEATS_A_SESSION);
        List<String> assignors = new ArrayList<>();
        for (String name : arguments.get("strategy").split(",")) {
            assignors.add(ASSIGNORS.get(name));
        }

        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.put("group.id", arguments.get("group"));
        settings.put("client.id", arguments.get("client-id"));
        settings.put("partition.assignment.strategy", String.join(",", assignors));
        settings.put("session.timeout.ms", session);
        settings.put("heartbeat.interval.ms", arguments.getOrDefault("heartbeat-ms", heartbeat));
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (arguments.containsKey("instance-id")) {
            settings.put("group.instance.id", arguments.get("instance-id"));
        }
        if (arguments.containsKey("login")) {
            logIn(arguments.get("login"), settings);
        }
        return settings;
    }

    /** Log in over TLS by SCRAM-SHA-512; the file has ca, user and password. PEM is of 2.7. */
    private static void logIn(String file, Properties settings) throws IOException {
        Properties login = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            login.load(reader);
        }
        settings.put("security.protocol", "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", login.getProperty("ca"));
        settings.put("sasl.mechanism", "SCRAM-SHA-512");
        settings.put(
                "sasl.jaas.config",
                String.format(
                        "org.apache.kafka.common.security.scram.ScramLoginModule required"
                                + " username=\"%s\" password=\"%s\";",
                        login.getProperty("user"), login.getProperty("password")));
    }

    private static void joinQuietly(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private void consume(List<String> topics) {
        consumer.subscribe(topics, this);
        while (!isStopped) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                sayMessage(record);
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                if (commits) {
                    progress.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
            }
            commit();
        }
    }

    /** Commit what is written; keep it for the next time if that fails. */
    private void commit() {
        if (progress.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(new HashMap<>(progress));
        } catch (KafkaException error) {
            sayError(error);
            return;
        }
        List<String> offsets = new ArrayList<>();
        progress.forEach(
                (partition, offset) ->
                        offsets.add(
                                String.format(
                                        "[\"%s\", %d, %d]",
                                        partition.topic(),
                                        partition.partition(),
                                        offset.offset())));
        say("committed", "\"offsets\": " + offsets);
        progress.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        sayChanged("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        progress.keySet().removeAll(partitions);
        sayChanged("revoked", partitions);
    }

    // Since 2.4; before, what is lost is revoked.
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        progress.keySet().removeAll(partitions);
        sayChanged("lost", partitions);
    }

    private static void sayChanged(String event, Collection<TopicPartition> partitions) {
        List<String> names = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            names.add(String.format("[\"%s\", %d]", partition.topic(), partition.partition()));
        }
        say(event, "\"partitions\": " + names);
    }

    private static void sayMessage(ConsumerRecord<byte[], byte[]> record) {
        String value = new String(record.value(), StandardCharsets.UTF_8);
        say(
                "message",
                String.format(
                        "\"topic\": \"%s\", \"partition\": %d, \"offset\": %d, \"value\": \"%s\"",
                        record.topic(), record.partition(), record.offset(), value));
    }

    private static void sayError(Exception error) {
        String message = error.toString().replaceAll("[\"\\\\\\s]+", " ");
        say("error", "\"message\": \"" + message + "\"");
    }

    private static void say(String event, String fields) {
        String head = "{\"event\": \"" + event + "\", \"at_ms\": " + System.currentTimeMillis();
        System.out.println(head + ", " + fields + "}");
    }
}
