import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * Kafka's producer of old: sends standard input, a line "key value" for each message, as strings.
 *
 * <p>Arguments: brokers, the topic, names of codecs. All of it is sent once with each codec, which
 * is put in front of the value. The exit code is 0 once all of it is acknowledged.
 */
public final class OldProducer {
    public static void main(String[] words) throws Exception {
        List<String[]> pairs = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            pairs.add(line.split(" ", 2));
        }
        for (int index = 2; index < words.length; index++) {
            send(words[0], words[1], words[index], pairs);
        }
        System.exit(0); // some releases leave a thread behind
    }

    private static void send(String brokers, String topic, String codec, List<String[]> pairs) {
        Properties settings = new Properties();
        settings.setProperty("metadata.broker.list", brokers);
        settings.setProperty("serializer.class", "kafka.serializer.StringEncoder");
        settings.setProperty("request.required.acks", "-1");
        settings.setProperty("compression.codec", codec);
        Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        for (String[] pair : pairs) {
            messages.add(new KeyedMessage<>(topic, pair[0], codec + " " + pair[1]));
        }
        producer.send(messages);
        producer.close();
    }
}
