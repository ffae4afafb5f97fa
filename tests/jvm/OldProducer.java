import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * Kafka's producer of old: sends the lines of standard input, "key value", as one batch of strings.
 *
 * <p>Arguments: the topic, settings as name=value. The exit code is 0 once all are acknowledged.
 */
public final class OldProducer {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("serializer.class", "kafka.serializer.StringEncoder");
        for (int index = 1; index < words.length; index++) {
            String[] pair = words[index].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] pair = line.split(" ", 2);
            messages.add(new KeyedMessage<>(words[0], pair[0], pair[1]));
        }
        Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
        producer.send(messages);
        producer.close();
        System.exit(0); // some releases leave a thread behind
    }
}
