"""`kgroup produce`, `consume` and `offsets` on a running cluster."""

import asyncio
import json
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from clients import blocking
from clients.kgroup.command import main
from clients.kgroup.produce import say_interrupted
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line, first_line
from tests.stage.waiting import DEADLINE_S, block_until
from zk.session import KazooSession
from zk.znodes import TopicAssignment


@pytest.fixture
def topic(dev_cluster: DevCluster) -> str:
    """Create a topic of one partition for one test."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    dev_cluster.create_topic(name)
    return name


def send(cluster: DevCluster, topic: str, lines: Sequence[str]) -> None:
    """Write lines without a command, for tests of one that reads."""
    with blocking.Producer({"bootstrap.servers": cluster.address("bootstrap")}) as producer:
        for sent in [producer.send(topic, line.encode()) for line in lines]:
            sent.result(DEADLINE_S)


def produce(cluster: DevCluster, topic: str, lines: Sequence[str], *args: str) -> None:
    stdin = "".join(f"{line}\n" for line in lines)
    result = cluster.run("kgroup", "produce", "--topic", topic, "--acks", "all", *args, stdin=stdin)
    assert (result.returncode, result.stderr) == (0, "")


def exit_code_of_usage(*words: str) -> int:
    """Run a command that asks nobody, as its usage is wrong."""
    nowhere = {"KGROUP_BOOTSTRAP_SERVER": "127.0.0.1:1", "KGROUP_ZOOKEEPER": "127.0.0.1:1"}
    ran = CliRunner(env=nowhere).invoke(main, words)
    assert isinstance(ran.exception, SystemExit), "no traceback"
    return ran.exit_code


def consume(cluster: DevCluster, *args: str) -> subprocess.CompletedProcess[str]:
    result = cluster.run("kgroup", "consume", "--from-beginning", *args)
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    return result


def unnamed_groups(cluster: DevCluster) -> set[str]:
    """Return the groups that consumers got for lack of a name, and that still exist."""
    groups = cluster.run("kgroup", "list").stdout.split()
    return {group for group in groups if group.startswith("console-consumer-")}


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_a_consumer_resumes_behind_the_last_line_it_wrote(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, numbers(0, 30))
    args = ("--topic", topic, "--group", topic, "--max-messages", "10")
    for first in (0, 10, 20):
        assert consume(dev_cluster, *args).stdout.split() == numbers(first, first + 10)


def test_silence_for_the_time_out_ends_it_with_zero_and_commits(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, numbers(0, 3))
    args = ("--topic", topic, "--group", topic, "--timeout-ms", "1500")
    seen: list[str] = []

    def has_read_all() -> bool:  # a busy machine may be silent before it has brought the first
        result = consume(dev_cluster, *args)
        read = result.stdout.split()
        assert result.stderr == f"Processed a total of {len(read)} messages\n"
        seen.extend(read)
        return len(seen) >= 3

    block_until(has_read_all, "all messages are read")
    assert seen == numbers(0, 3)
    assert consume(dev_cluster, *args).stdout == ""


def test_silence_of_a_partition_that_cannot_be_read_is_a_failure(dev_cluster: DevCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"

    # The only replica of one of its partitions is on a broker that is not there.
    async def create() -> None:
        session = KazooSession(dev_cluster.address("zookeeper"))
        await session.start()
        assignment = TopicAssignment({0: (0,), 1: (99,)})
        await session.create(TopicAssignment.path(topic), assignment.encode())
        await session.close()

    asyncio.run(create())
    result = dev_cluster.run("kgroup", "consume", "--topic", topic, "--timeout-ms", "1500")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.endswith(
        f"Processed a total of 0 messages\nerror: {topic}-1 could not be read: no leader\n"
    )

    # What was read came all the same.
    with blocking.Producer({"bootstrap.servers": dev_cluster.address("bootstrap")}) as producer:
        producer.send(topic, b"there", partition=0).result(DEADLINE_S)
    result = consume(dev_cluster, "--topic", topic, "--timeout-ms", "3000")
    assert (result.returncode, result.stdout) == (0, "there\n")
    assert result.stderr.endswith(
        f"Processed a total of 1 messages\nwarning: {topic}-1 could not be read: no leader\n"
    )


def test_a_reader_that_goes_away_ends_it_cleanly_and_what_was_not_written_comes_again(
    dev_cluster: DevCluster, topic: str
) -> None:
    lines = [f"{number:05}" + "x" * 1000 for number in range(1000)]
    send(dev_cluster, topic, lines)
    consumer = dev_cluster.begin(
        "kgroup", "consume", "--topic", topic, "--group", topic, "--from-beginning"
    )

    assert first_line(consumer) == f"{lines[0]}\n"
    assert consumer.stdout is not None
    assert consumer.stderr is not None

    consumer.stdout.close()
    stderr = consumer.stderr.read()
    assert (consumer.wait(DEADLINE_S), "Traceback" in stderr) == (0, False)

    written = int(stderr.split()[4])  # Processed a total of N messages
    left = ("--max-messages", str(len(lines) - written))
    rest = consume(dev_cluster, "--topic", topic, "--group", topic, *left)
    assert rest.stdout.split() == lines[written:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_group_cleanly_with_zero(
    dev_cluster: DevCluster, topic: str, number: signal.Signals
) -> None:
    send(dev_cluster, topic, ["one"])
    args = ("--topic", topic, "--group", topic, "--from-beginning")
    consumer = dev_cluster.begin("kgroup", "consume", *args)
    assert first_line(consumer) == "one\n"
    consumer.send_signal(number)
    _, stderr = consumer.communicate(timeout=DEADLINE_S)
    assert (consumer.returncode, stderr) == (0, "Processed a total of 1 messages\n")
    members = dev_cluster.run("kgroup", "describe", topic, "--members", "-o", "json")
    assert json.loads(members.stdout)["items"] == []
    (item,) = json.loads(dev_cluster.run("kgroup", "describe", topic, "-o", "json").stdout)["items"]
    assert (item["current_offset"], item["lag"]) == (1, 0)


def test_a_group_that_was_not_named_is_forgotten(dev_cluster: DevCluster, topic: str) -> None:
    send(dev_cluster, topic, ["one"])
    others = unnamed_groups(dev_cluster)
    assert consume(dev_cluster, "--topic", topic, "--max-messages", "1").stdout == "one\n"
    assert unnamed_groups(dev_cluster) <= others


def test_two_streams_and_a_whitelist_bring_every_message_once(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, numbers(0, 5))
    send(dev_cluster, f"{topic}-b", numbers(5, 10))
    result = consume(
        dev_cluster, "--whitelist", f"{topic}.*", "--streams", "2", "--max-messages", "10"
    )
    assert sorted(result.stdout.split(), key=int) == numbers(0, 10)


def test_keys_values_and_nothing_else_come_back_as_json(
    dev_cluster: DevCluster, topic: str
) -> None:
    produce(dev_cluster, topic, ["k=v=w"], "--key-separator", "=", "--compression", "gzip")
    result = consume(dev_cluster, "--topic", topic, "--max-messages", "1", "-o", "json")
    message = json.loads(result.stdout)
    assert message.pop("timestamp") > 1_700_000_000_000
    assert message == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": "v=w",
        "headers": [],
    }


def test_properties_go_to_the_formatter_or_to_the_consumer_by_their_name(
    dev_cluster: DevCluster, topic: str
) -> None:
    produce(dev_cluster, topic, ["k:v"], "--key-separator", ":")
    args = ("--topic", topic, "--max-messages", "1", "--property", "print.key=true")
    both = (*args, "--property", "key.separator=;", "--property", "fetch.min.bytes=2")
    assert consume(dev_cluster, *both).stdout == "k;v\n"


def test_a_message_its_deserializer_cannot_read_is_named_or_skipped(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, ["four", "fives", "8888"])
    args = ("--topic", topic, "--from-beginning", "--max-messages", "3")
    number = ("--value-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer")
    refused = dev_cluster.run("kgroup", "consume", *args, *number)
    assert (refused.returncode, refused.stdout) == (1, "1718580594\n")
    assert refused.stderr.startswith(f"error: {topic}-0 at offset 1: ")
    skipped = dev_cluster.run("kgroup", "consume", *args, *number, "--skip-message-on-error")
    assert (skipped.returncode, skipped.stdout.split()) == (0, ["1718580594", "943208504"])


def test_a_blacklist_brings_the_topics_it_does_not_name(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, ["one"])
    result = consume(
        dev_cluster, "--blacklist", f"(?!{topic}$).*", "--max-messages", "1", "--group", topic
    )
    assert result.stdout == "one\n"


def test_offsets_are_deleted_first_when_told_so(dev_cluster: DevCluster, topic: str) -> None:
    send(dev_cluster, topic, ["one"])
    args = ("--topic", topic, "--group", topic, "--max-messages", "1")
    assert consume(dev_cluster, *args).stdout == "one\n"
    assert consume(dev_cluster, *args, "--delete-consumer-offsets").stdout == "one\n"


@pytest.mark.parametrize(
    ("begin", "read"),
    [
        (("--offset", "earliest"), numbers(0, 5)),
        (("--from-beginning",), numbers(0, 5)),
        (("--offset", "3", "--fetch-size", "40"), numbers(3, 5)),
        ((), []),
    ],
)
def test_one_partition_is_read_by_hand_from_where_it_is_told(
    dev_cluster: DevCluster, topic: str, begin: tuple[str, ...], read: list[str]
) -> None:
    send(dev_cluster, topic, numbers(0, 5))
    args = ("--topic", topic, "--partition", "0", "--timeout-ms", "700")
    others = unnamed_groups(dev_cluster)

    def has_read_all() -> bool:  # a busy machine may be silent before it has brought the first
        result = dev_cluster.run("kgroup", "consume", *args, *begin)
        lines = result.stdout.split()
        assert (result.returncode, lines) == (0, read[: len(lines)])
        return lines == read

    block_until(has_read_all, "all messages are read")
    assert unnamed_groups(dev_cluster) <= others


def test_a_partition_read_by_hand_waits_for_what_comes_and_ends_on_a_signal(
    dev_cluster: DevCluster, topic: str
) -> None:
    consumer = dev_cluster.begin(
        "kgroup", "consume", "--topic", topic, "--partition", "0", "--offset", "0", "-o", "json"
    )
    send(dev_cluster, topic, ["one"])
    assert json.loads(first_line(consumer))["value"] == "one"
    consumer.send_signal(signal.SIGTERM)
    _, stderr = consumer.communicate(timeout=DEADLINE_S)
    assert (consumer.returncode, stderr) == (0, "Processed a total of 1 messages\n")


def test_an_offset_that_the_log_has_not_is_an_error(dev_cluster: DevCluster, topic: str) -> None:
    args = ("--topic", topic, "--partition", "0", "--offset", "7")
    result = dev_cluster.run("kgroup", "consume", *args)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: OFFSET_OUT_OF_RANGE")


@pytest.mark.parametrize(
    "args",
    [
        ("--group", ""),
        ("--offset", "3"),
        ("--partition", "0", "--offset", "x"),
        ("--partition", "0", "--offset", "²"),
        ("--partition", "0", "--offset", "3", "--from-beginning"),
        ("--partition", "0", "--group", "g"),
        ("--partition", "0", "--property", "no.such=1"),
        ("--fetch-size", "many"),
        ("--partition", "0", "--fetch-size", "0"),
        ("--group", "a", "--consumer-property", "group.id=b"),
        ("--from-beginning", "--property", "auto.offset.reset=largest"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(args: tuple[str, ...]) -> None:
    assert exit_code_of_usage("consume", "--topic", "t", *args) == 2


@pytest.mark.parametrize("args", [("--sync",), ("--property", "producer.type=async")])
def test_lines_are_sent_one_by_one_and_by_the_old_producer(
    dev_cluster: DevCluster, topic: str, args: tuple[str, ...]
) -> None:
    options = ("--compression-codec", "--request-required-acks", "-1", "--retry-backoff-ms", "50")
    broker = ("--broker-list", dev_cluster.address("bootstrap"))
    lines = "".join(f"{number}\n" for number in range(20))
    result = dev_cluster.run(
        "kgroup", "produce", "--topic", topic, *broker, *args, *options, stdin=lines
    )
    assert (result.returncode, result.stderr) == (0, "")
    consumed = consume(dev_cluster, "--topic", topic, "--max-messages", "20")
    assert consumed.stdout == lines


def test_a_property_nobody_knows_is_refused(dev_cluster: DevCluster, topic: str) -> None:
    result = dev_cluster.run("kgroup", "consume", "--topic", topic, "--property", "no.such=1")
    assert result.returncode == 2
    assert result.stderr.startswith("error: no.such")


def test_a_pattern_that_is_none_is_wrong_usage(dev_cluster: DevCluster) -> None:
    result = dev_cluster.run("kgroup", "consume", "--whitelist", "w(")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)


def test_lines_are_read_as_what_the_serializer_takes(dev_cluster: DevCluster, topic: str) -> None:
    serializer = "org.apache.kafka.common.serialization"
    written = ("--key-serializer", f"{serializer}.StringSerializer")
    numbers = ("--property", f"value.serializer={serializer}.LongSerializer")
    produce(dev_cluster, topic, ["k:-5"], "--key-separator", ":", *written, *numbers)
    read = ("--value-deserializer", f"{serializer}.LongDeserializer")
    args = ("--topic", topic, "--max-messages", "1", "--property", "print.key=true", *read)
    assert consume(dev_cluster, *args).stdout == "k\t-5\n"


@pytest.mark.parametrize(("line", "reason"), [("x", "'x'"), ("2147483648", "2147483647")])
@pytest.mark.parametrize("args", [(), ("--old-producer", "--sync")])
def test_a_line_that_the_serializer_does_not_take_is_named(
    dev_cluster: DevCluster, topic: str, line: str, reason: str, args: tuple[str, ...]
) -> None:
    options = ("--topic", topic, "--value-serializer", "IntegerSerializer", *args)
    result = dev_cluster.run("kgroup", "produce", *options, stdin=f"1\n{line}\n")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: line 2: ")
    assert reason in result.stderr


def test_what_the_old_producer_could_not_send_is_one_line_and_exit_code_one(
    dev_cluster: DevCluster, topic: str
) -> None:
    options = ("--old-producer", "--batch-size", "5", "--value-serializer", "IntegerSerializer")
    result = dev_cluster.run(
        "kgroup", "produce", "--topic", topic, *options, stdin="1\n2147483648\n2\n"
    )
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: 1 messages were accepted and not sent")
    consumed = consume(dev_cluster, "--topic", topic, "--max-messages", "2", "-o", "json")
    assert len(consumed.stdout.splitlines()) == 2


def test_lines_for_which_a_full_queue_has_no_room_are_named_and_the_others_sent(
    dev_cluster: DevCluster, topic: str
) -> None:
    options = ("--old-producer", "--batch-size", "1", "--queue-size", "1")
    drop = ("--queue-enqueuetimeout-ms", "0")
    lines = "".join(f"{number}\n" for number in range(100))
    result = dev_cluster.run("kgroup", "produce", "--topic", topic, *options, *drop, stdin=lines)
    assert result.returncode == 1
    assert "messages already wait to be sent" in result.stderr
    assert result.stderr.endswith("error: … and more messages\n")
    offsets = dev_cluster.run("kgroup", "offsets", "--topic", topic, "-o", "csv").stdout
    assert 0 < int(offsets.splitlines()[1].split(",")[2]) < 100


def test_keys_are_cut_as_properties_say(dev_cluster: DevCluster, topic: str) -> None:
    """KAFKA-807, KAFKA-1824: the properties were read wrong, or lost on the way."""
    properties = ("--property", "parse.key=true", "--property", "key.separator=#")
    produce(dev_cluster, topic, ["k#v#w"], *properties)
    args = ("--topic", topic, "--max-messages", "1", "--property", "print.key=true")
    assert consume(dev_cluster, *args).stdout == "k\tv#w\n"


@pytest.mark.parametrize("args", [(), ("--topic", "a", "--whitelist", "b")])
def test_exactly_one_way_to_name_topics_is_needed(args: tuple[str, ...]) -> None:
    assert exit_code_of_usage("consume", *args) == 2


def test_a_file_is_sent_whole_also_without_an_end_to_its_last_line(
    dev_cluster: DevCluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(0, 20_000)))

    with file.open() as stdin:
        subprocess.run(
            command_line("kgroup", "produce", "--topic", topic),
            cwd=ROOT,
            env=dev_cluster.env,
            stdin=stdin,
            check=True,
            timeout=DEADLINE_S,
        )

    result = consume(dev_cluster, "--topic", topic, "--max-messages", "20000")
    assert result.stdout.split() == numbers(0, 20_000)


def test_a_line_without_its_separator_is_named_and_those_before_it_are_sent(
    dev_cluster: DevCluster, topic: str
) -> None:
    result = dev_cluster.run(
        "kgroup", "produce", "--topic", topic, "--key-separator", ":", stdin="a:1\nb\n"
    )
    assert (result.returncode, result.stderr) == (1, "error: no key separator in line 2\n")
    offsets = dev_cluster.run("kgroup", "offsets", "--topic", topic, "-o", "csv").stdout
    assert offsets.splitlines()[1:] == [f"{topic},0,1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [(), ("--property", "producer.type=sync")], ids=["new", "old"])
def test_ctrl_c_ends_a_producer_that_waits_for_input(
    dev_cluster: DevCluster, topic: str, number: signal.Signals, options: tuple[str, ...]
) -> None:
    producer = subprocess.Popen(
        command_line("kgroup", "produce", "--topic", topic, *options),
        cwd=ROOT,
        env=dev_cluster.env,
        text=True,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    assert producer.stdin is not None

    producer.stdin.write("sent\ntoo\n")
    producer.stdin.flush()
    assert consume(dev_cluster, "--topic", topic, "--max-messages", "2").stdout == "sent\ntoo\n"

    producer.send_signal(number)
    assert producer.wait(DEADLINE_S) == 130  # its input is still open
    assert producer.communicate()[1] == "interrupted: 2 of 2 messages are acknowledged\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_what_cannot_be_sent(
    dev_cluster: DevCluster, topic: str, number: signal.Signals
) -> None:
    two = ("--config", "min.insync.replicas=2")
    made = dev_cluster.run("kbroker", "topics", "create", f"{topic}-two", *two)
    assert made.returncode == 0, made.stderr
    producer = subprocess.Popen(
        command_line("kgroup", "produce", "--topic", f"{topic}-two", "--acks", "all"),
        cwd=ROOT,
        env=dev_cluster.env,
        text=True,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert producer.stdin is not None
    producer.stdin.write("never\n")
    producer.stdin.flush()
    assert producer.stderr is not None
    said = producer.stderr.readline()
    assert said == f"warning: {topic}-two-0: NOT_ENOUGH_REPLICAS; trying again\n"

    producer.send_signal(number)
    # It waits a second for the broker, unless it is told not to.
    with pytest.raises(subprocess.TimeoutExpired):
        producer.wait(0.3)
    producer.send_signal(number)
    lines = producer.stderr.read().splitlines()
    assert producer.wait(DEADLINE_S) == 130
    assert "interrupted: 0 of 1 messages are acknowledged; the others may be stored or not" in lines
    assert not [line for line in lines if "Traceback" in line]


@pytest.mark.parametrize(
    ("acknowledged", "asks_for_acks", "said"),
    [
        (3, True, "3 of 3 messages are acknowledged"),
        (2, True, "2 of 3 messages are acknowledged; the others may be stored or not"),
        (3, False, "3 of 3 messages are sent (acks=0: no broker says that it has them)"),
    ],
)
def test_what_an_interrupted_producer_knows_of_its_messages_is_said(
    capsys: pytest.CaptureFixture[str], acknowledged: int, asks_for_acks: bool, said: str
) -> None:
    say_interrupted(3, acknowledged, asks_for_acks=asks_for_acks)
    assert capsys.readouterr().err == f"interrupted: {said}\n"


def test_offsets_are_found_by_time(dev_cluster: DevCluster, topic: str) -> None:
    send(dev_cluster, topic, numbers(0, 4))

    def offset(*args: str) -> object:
        result = dev_cluster.run("kgroup", "offsets", "--topic", topic, "-o", "json", *args)
        (item,) = json.loads(result.stdout)["items"]
        return item["offset"]

    assert offset() == 4
    assert offset("--time", "earliest") == 0
    assert offset("--time", "2001-01-01T00:00:00Z") == 0
    assert offset("--time", "2999-01-01") is None


def test_offsets_in_the_spelling_of_getoffsetshell_are_its_lines(
    dev_cluster: DevCluster, topic: str
) -> None:
    send(dev_cluster, topic, numbers(0, 4))

    def lines(*args: str) -> tuple[int, str]:
        broker = ("--broker-list", dev_cluster.address("bootstrap"))
        result = dev_cluster.run("kgroup", "offsets", *broker, "--topic", topic, *args)
        return result.returncode, result.stdout

    assert lines("--time", "-1") == (0, f"{topic}:0:4\n")
    assert lines("--time", "-2", "--partitions", "0") == (0, f"{topic}:0:0\n")
    assert lines("--time", "-1", "--offsets", "5") == (0, f"{topic}:0:4,0\n")
    assert lines("--partitions", "0,7", "--timeout", "4000") == (1, f"{topic}:0:4\n")


def test_offsets_of_a_topic_that_is_not_there_fail(dev_cluster: DevCluster) -> None:
    args = ("kgroup", "offsets", "--topic", "nowhere", "--timeout", "4000")
    result = dev_cluster.run(*args)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    in_json = dev_cluster.run(*args, "-o", "json")
    (error,) = json.loads(in_json.stdout)["errors"]
    assert (in_json.returncode, error["error"]) == (1, "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize("time", ["teatime", "-3", "99999999999999999999", "²", "9999-99-99"])
def test_a_time_that_is_none_is_wrong_usage(time: str) -> None:
    assert exit_code_of_usage("offsets", "--topic", "t", "--time", time) == 2
