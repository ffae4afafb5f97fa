import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A reader of committed data by Kafka's own consumer: a line for each record of the partitions,
 * given as "topic-0,topic-1", from their beginning on, until it is killed.
 */
public final class CommittedReader {
    private CommittedReader() {}

    public static void main(String[] words) {
        Map<String, String> arguments = new HashMap<>();
        for (int i = 0; i < words.length; i += 2) {
            arguments.put(words[i].substring(2), words[i + 1]);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("request.timeout.ms", 4000);
        List<TopicPartition> partitions = new ArrayList<>();
        for (String name : arguments.get("partitions").split(",")) {
            int dash = name.lastIndexOf('-');
            int partition = Integer.parseInt(name.substring(dash + 1));
            partitions.add(new TopicPartition(name.substring(0, dash), partition));
        }

        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.assign(partitions);
        for (TopicPartition partition : partitions) {
            consumer.seek(partition, 0);
        }
        while (true) {
            for (ConsumerRecord<String, String> record :
                    consumer.poll(Duration.ofMillis(500))) {
                System.out.println(
                        String.join(
                                " ",
                                "row",
                                record.topic(),
                                Integer.toString(record.partition()),
                                Long.toString(record.offset()),
                                record.value()));
            }
            System.out.flush();
        }
    }
}
