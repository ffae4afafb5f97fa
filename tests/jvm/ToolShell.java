import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs tools of Kafka one after the other, for a JVM of its own takes each of them seconds. A line of
 * standard input has the main class and its arguments, with a tab between two. What the tool prints
 * goes to standard output; then a line follows with a zero byte and the exit code.
 */
public final class ToolShell {
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] words) throws Exception {
        PrintStream terminal = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        // Before the first class of Scala keeps them.
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(System.out);
        Exit.setExitProcedure(
                (code, message) -> {
                    throw new Ended(code);
                });

        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            int code = run(parts[0], Arrays.copyOfRange(parts, 1, parts.length));
            System.out.flush();
            printed.writeTo(terminal);
            printed.reset();
            terminal.printf("%n\0%d%n", code);
            terminal.flush();
        }
    }

    private static int run(String main, String[] arguments) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended) {
                return ((Ended) thrown.getCause()).code;
            }
            thrown.getCause().printStackTrace(System.out);
            return 1;
        }
    }
}
