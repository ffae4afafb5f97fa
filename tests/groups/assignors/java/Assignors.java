import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Answers for Kafka's own assignors: a line of words on standard input, a line on standard output.
 *
 * <p>"assign NAME TOPIC=COUNT,... MEMBER=INSTANCE=SUBSCRIPTION ..." is answered by "MEMBER=ASSIGNMENT
 * ...". "user_data NAME GENERATION ASSIGNMENT" is answered by the user data of a member that got the
 * assignment. Bytes are in hex, as they are in JoinGroup and SyncGroup; "-" stands for no instance
 * id, no topics and null. If an assignor fails, the answer is "! FAILURE".
 */
public class Assignors {
  private static final HexFormat HEX = HexFormat.of();
  private static final Node NODE = new Node(0, "host", 9092);

  public static void main(String[] args) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      // An assignor remembers the highest generation it has seen, so each line gets a new one.
      ConsumerPartitionAssignor assignor = create(words[1]);
      try {
        out.println(words[0].equals("assign") ? assign(assignor, words) : userData(assignor, words));
      } catch (RuntimeException failure) {
        out.println("! " + failure);
      }
    }
  }

  private static ConsumerPartitionAssignor create(String name) {
    switch (name) {
      case "range":
        return new RangeAssignor();
      case "roundrobin":
        return new RoundRobinAssignor();
      case "sticky":
        return new StickyAssignor();
      default:
        return new CooperativeStickyAssignor();
    }
  }

  private static String assign(ConsumerPartitionAssignor assignor, String[] words) {
    Map<String, Subscription> members = new HashMap<>();
    for (int i = 3; i < words.length; i++) {
      String[] member = words[i].split("=");
      Subscription subscription =
          ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HEX.parseHex(member[2])));
      if (!member[1].equals("-")) {
        subscription.setGroupInstanceId(Optional.of(member[1]));
      }
      members.put(member[0], subscription);
    }

    StringBuilder answer = new StringBuilder();
    assignor
        .assign(cluster(words[2]), new GroupSubscription(members))
        .groupAssignment()
        .forEach((member, share) -> answer.append(' ').append(member).append('=').append(hex(share)));
    return answer.toString().trim();
  }

  private static String userData(ConsumerPartitionAssignor assignor, String[] words) {
    int generation = Integer.parseInt(words[2]);
    if (!words[3].equals("-")) {
      Assignment share =
          ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(HEX.parseHex(words[3])));
      assignor.onAssignment(
          share, new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
    }
    ByteBuffer data = assignor.subscriptionUserData(Set.of());
    return data == null ? "-" : hex(data);
  }

  private static Cluster cluster(String counts) {
    List<PartitionInfo> partitions = new ArrayList<>();
    for (String topic : counts.equals("-") ? new String[0] : counts.split(",")) {
      String[] pair = topic.split("=");
      for (int number = 0; number < Integer.parseInt(pair[1]); number++) {
        Node[] replicas = {NODE};
        partitions.add(new PartitionInfo(pair[0], number, NODE, replicas, replicas));
      }
    }
    return new Cluster("cluster", List.of(NODE), partitions, Collections.emptySet(), Set.of());
  }

  private static String hex(Assignment share) {
    return hex(ConsumerProtocol.serializeAssignment(share));
  }

  private static String hex(ByteBuffer bytes) {
    byte[] copy = new byte[bytes.remaining()];
    bytes.get(copy);
    return HEX.formatHex(copy);
  }
}
