import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a group on the JVM: Kafka's ZookeeperConsumerConnector, until standard input ends.
 *
 * <p>Arguments: "topic" or "whitelist", the topic or regex, the number of streams, settings as
 * name=value. Each message is one line of JSON on standard output; values must be plain letters,
 * digits and spaces. The exit code is 0 if the member joined and left in good order.
 */
public final class OldConsumer {
    public static void main(String[] words) throws Exception {
        int count = Integer.parseInt(words[2]);
        ConsumerConnector connector =
                Consumer.createJavaConsumerConnector(new ConsumerConfig(settings(words)));
        List<KafkaStream<byte[], byte[]>> streams =
                words[0].equals("topic")
                        ? connector
                                .createMessageStreams(Collections.singletonMap(words[1], count))
                                .get(words[1])
                        : connector.createMessageStreamsByFilter(new Whitelist(words[1]), count);
        List<Thread> threads = new ArrayList<>();
        for (KafkaStream<byte[], byte[]> stream : streams) {
            Thread thread = new Thread(() -> print(stream));
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() != -1) {}
        connector.shutdown();
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0); // some releases leave a thread behind for a second
    }

    private static Properties settings(String[] words) {
        Properties settings = new Properties();
        for (String word : Arrays.asList(words).subList(3, words.length)) {
            String[] pair = word.split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        return settings;
    }

    private static void print(KafkaStream<byte[], byte[]> stream) {
        for (MessageAndMetadata<byte[], byte[]> message : stream) {
            String value = new String(message.message(), StandardCharsets.UTF_8);
            String line =
                    String.format(
                            "{\"topic\": \"%s\", \"partition\": %d, \"offset\": %d, \"value\": \"%s\"}",
                            message.topic(), message.partition(), message.offset(), value);
            System.out.println(line);
        }
    }
}
