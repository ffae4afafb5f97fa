"""`kbroker elect`: Kafka's spelling, and Kafka's sentences."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker.kbroker.command import main
from broker.kbroker.elect import rewrite_election_type, show_verdicts
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("--election-type PREFERRED --topic t", "--preferred --topic t"),
        ("--topic t --election-type=unclean", "--topic t --unclean"),
        ("preferred --all", "preferred --all"),
        ("--election-type", "--"),
    ],
)
def test_the_kind_of_election_may_be_an_option(typed: str, understood: str) -> None:
    assert rewrite_election_type(typed.split()) == understood.split()


@pytest.mark.parametrize(
    ("content", "code", "reason"), [(b"{", 1, "not JSON"), (b"\xff\xfe", 2, "not UTF-8")]
)
def test_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes, code: int, reason: str
) -> None:
    file = tmp_path / "partitions.json"
    file.write_bytes(content)
    ran = CliRunner().invoke(main, ["elect", "preferred", "--path-to-json-file", str(file)])
    assert ran.exit_code == code
    assert f"{file}: {reason}" in ran.stderr


@pytest.mark.parametrize("output", ["table", "wide"])
def test_each_partition_is_elected_was_elected_or_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str], output: str
) -> None:
    verdicts = {
        T0: None,
        T1: ApiError(ErrorCode.ELECTION_NOT_NEEDED),
        T2: ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 2 is down"),
    }
    with pytest.raises(click.exceptions.Exit) as ended:
        show_verdicts(verdicts, "PREFERRED", output)
    assert ended.value.exit_code == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions t-0",
        "Valid replica already elected for partitions t-1",
    ]
    assert printed.err == "error: t-2: PREFERRED_LEADER_NOT_AVAILABLE: broker 2 is down\n"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("preferred", 2, "say which partitions"),
        ("preferred --all --topic t", 2, "say which partitions"),
        ("preferred --all --partition 0", 2, "--partition needs --topic"),
        ("preferred --topic never --partition 0", 1, "error: never-0: UNKNOWN_TOPIC_OR_PARTITION"),
        ("unclean --topic never", 1, "error: UNKNOWN_TOPIC_OR_PARTITION"),
        ("--election-type best --all", 2, "best"),
    ],
)
def test_a_users_mistake_is_named(
    dev_cluster: DevCluster, line: str, code: int, message: str
) -> None:
    result = dev_cluster.run("kbroker", "elect", *line.split())
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert message in result.stderr
