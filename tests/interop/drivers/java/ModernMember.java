import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer with group.protocol=consumer: prints what the first poll that fails throws. */
public final class ModernMember {
    private ModernMember() {}

    public static void main(String[] words) {
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", words[0],
                        "group.id", words[1],
                        "group.protocol", "consumer",
                        "key.deserializer", ByteArrayDeserializer.class,
                        "value.deserializer", ByteArrayDeserializer.class);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            consumer.subscribe(List.of(words[2]));
            while (true) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (KafkaException refused) {
            System.out.println(refused.getClass().getSimpleName());
        }
    }
}
