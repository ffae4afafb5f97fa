import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A round trip by Kafka's own client, of 2.8 or newer: a first attempt with a wrong secret, which
 * must be refused, and then a login by which it produces, consumes as a member of a group, and
 * commits. Standard input has a line name=value for each part; the lines written are those of all
 * drivers. The secret is a password, a token, or a PEM file with a key and its certificates;
 * "pause_ms" is the time between two values.
 */
public final class RoundTrip {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long TIMEOUT_MS = 30_000;
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final Map<String, String> MODULE_OF =
            Map.of(
                    "PLAIN", MODULES + "plain.PlainLoginModule",
                    "SCRAM-SHA-256", MODULES + "scram.ScramLoginModule",
                    "SCRAM-SHA-512", MODULES + "scram.ScramLoginModule",
                    "OAUTHBEARER", MODULES + "oauthbearer.OAuthBearerLoginModule");

    private final Map<String, String> asked;
    private final List<String> values;

    private RoundTrip(Map<String, String> asked) {
        this.asked = asked;
        this.values = List.of(asked.get("values").split(","));
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> right = new HashMap<>();
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        for (String line : input.split("\n")) {
            String[] parts = line.split("=", 2);
            right.put(parts[0], parts[1]);
        }
        Map<String, String> wrong = new HashMap<>(right);
        wrong.put("secret", right.get("wrong_secret"));

        try {
            new RoundTrip(wrong).travel();
        } catch (AuthenticationException error) {
            say("refused", "\"message\": " + quote(error.toString()));
        }
        new RoundTrip(right).travel();
    }

    private void travel() throws Exception {
        String topic = asked.get("topic");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, value)).get();
                Thread.sleep(Long.parseLong(asked.get("pause_ms")));
            }
        } catch (ExecutionException error) {
            if (error.getCause() instanceof AuthenticationException) {
                throw (AuthenticationException) error.getCause();
            }
            throw error;
        }

        Properties settings = settings();
        settings.put("group.id", asked.get("group"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        List<String> consumed = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(
                        settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + TIMEOUT_MS;
            while (consumed.size() < values.size() && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    consumed.add(quote(record.value()));
                }
            }
            consumer.commitSync();
        }
        say("consumed", "\"values\": " + consumed);
    }

    private Properties settings() throws IOException {
        String protocol = asked.get("protocol");
        String mechanism = asked.get("mechanism");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", asked.get("bootstrap"));
        settings.put("security.protocol", protocol);
        if (protocol.endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", asked.get("ca"));
        }
        if (mechanism.isEmpty()) {
            // 2.8 takes a key without a password only so, not from a file.
            String pem = Files.readString(Paths.get(asked.get("secret")));
            int chain = pem.indexOf("-----BEGIN CERTIFICATE");
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.key", pem.substring(0, chain));
            settings.put("ssl.keystore.certificate.chain", pem.substring(chain));
            return settings;
        }

        settings.put("sasl.mechanism", mechanism);
        String user = option("username", asked.get("user"));
        String options = user + option("password", asked.get("secret"));
        if (mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.login.callback.handler.class", TokenHandler.class.getName());
            options = option("token", asked.get("secret"));
        }
        String entry = MODULE_OF.get(mechanism) + " required" + options + ";";
        settings.put("sasl.jaas.config", entry);
        return settings;
    }

    private static String option(String name, String value) {
        return " " + name + "=" + quote(value);
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static void say(String event, String fields) {
        System.out.println("{\"event\": \"" + event + "\", " + fields + "}");
    }

    /** Gives the client the token of its login. */
    public static final class TokenHandler implements AuthenticateCallbackHandler {
        private static final long LIFETIME_MS = 3_600_000;

        private String token;

        @Override
        public void configure(
                Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
            token = (String) entries.get(0).getOptions().get("token");
        }

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) callback).token(new Token(token));
                } else if (!(callback instanceof SaslExtensionsCallback)) {
                    throw new UnsupportedCallbackException(callback);
                }
            }
        }

        @Override
        public void close() {}
    }

    /** A token that somebody has signed; its claims are the broker's affair. */
    private static final class Token implements OAuthBearerToken {
        private final String value;
        private final long startMs = System.currentTimeMillis();

        Token(String value) {
            this.value = value;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Collections.emptySet();
        }

        @Override
        public long lifetimeMs() {
            return startMs + TokenHandler.LIFETIME_MS;
        }

        @Override
        public String principalName() {
            return "";
        }

        @Override
        public Long startTimeMs() {
            return startMs;
        }
    }
}
