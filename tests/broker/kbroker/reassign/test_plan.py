"""Reassignment plans are read, checked, proposed, throttled and compared with the cluster."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.kbroker.command import main
from broker.kbroker.reassign.plan import (
    CopyProgress,
    ReassignmentError,
    Status,
    build_current_plan,
    check_plan,
    estimate_time_left_ms,
    find_status,
    format_plan,
    measure_progress,
    plan_throttle,
    propose_plan,
    read_partitions,
    read_plan,
    read_topics_to_move,
)
from broker.kbroker.reassign.progress import CopySpeed
from broker.kbroker.reassign.rows import format_status
from clients.admin.descriptions import PartitionReassignment, TopicDescription
from clients.cluster_view import PartitionView
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = TopicDescription(
    "t", False, {n: PartitionView(0, 0, (n, n + 1), (n, n + 1)) for n in range(2)}
)
CURRENT = {T0: (0, 1), T1: (1, 2)}
MOVING = PartitionReassignment((0, 1, 2), (2,), (0,))


def test_a_plan_is_written_as_the_original_does_and_read_again() -> None:
    text = format_plan(CURRENT)
    assert text == (
        '{"version":1,"partitions":['
        '{"topic":"t","partition":0,"replicas":[0,1],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":1,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )
    assert read_plan(text) == CURRENT


@pytest.mark.parametrize(
    ("words", "content", "code", "message"),
    [
        (["execute"], "{", 1, "plan.json: not JSON"),
        (["execute"], "[" * 100_000, 1, "plan.json: not JSON"),
        (["verify"], "\n", 1, "plan.json: the file is empty"),
        (["generate", "--broker-list", "0"], "[]", 1, "plan.json: the JSON must be an object"),
        (["--verify", "--reassignment-json-file"], '{"partitions":[]}', 1, "cannot be empty"),
        (["generate", "--broker-list", "0,0"], "", 2, "broker list contains duplicate entries"),
        (["generate", "--broker-list", "0,x"], "", 2, "is not broker ids"),
        (["cancel", "--reassignment-json-file", "no/such"], "", 2, "no/such"),
        (["generate", "--broker-list", "0"], '{"topics":[]}', 1, "no topic to move"),
    ],
)
def test_a_file_that_cannot_be_meant_is_one_line_before_anybody_is_asked(
    tmp_path: Path, words: list[str], content: str, code: int, message: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    result = CliRunner().invoke(main, ["reassign", *words, str(file)])
    assert result.exit_code == code
    assert message in result.stderr


def format_partition(**changed: object) -> str:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2]} | changed
    return json.dumps({"version": 1, "partitions": [entry]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "list of objects as 'partitions'"),
        ('{"partitions":[1]}', "list of objects as 'partitions'"),
        ('{"version":2,"partitions":[]}', "unknown version 2"),
        ('{"version":1,"partitions":[]}', "list cannot be empty"),
        (format_partition(topic=1), "'topic' is missing or not of type str"),
        (format_partition(partition=True), "'partition' is missing or not of type int"),
        (format_partition(replicas=[]), "t-0: replicas must be broker ids"),
        (format_partition(replicas=["1"]), "t-0: replicas must be broker ids"),
        (format_partition(replicas=[1, 2, 1]), "t-0 contains multiple entries for 1"),
        (
            format_partition(log_dirs=["any"]),
            "different from size of log dirs list for partition t-0",
        ),
        (format_partition(log_dirs=["any", "d"]), "t-0: log directory 'd' is neither 'any' nor an"),
        (format_partition(log_dirs=["any", 1]), "t-0: log directory 1 is neither"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
            '{"topic":"t","partition":0,"replicas":[2]}]}',
            "duplicate topic partitions: t-0",
        ),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(text: str, message: str) -> None:
    with pytest.raises(ReassignmentError) as refused:
        read_plan(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({T0: (1, 2), TopicPartition("u", 3): (1,)}, "non-existent partitions: u-3"),
        ({T0: (7, 0, 9)}, "non-existent brokerIDs: 7, 9"),
    ],
)
def test_partitions_and_brokers_that_are_not_there_are_named(
    plan: dict[TopicPartition, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ReassignmentError, match=message):
        check_plan(plan, CURRENT, {0, 1, 2})


def test_a_broker_that_is_down_but_keeps_a_replica_may_keep_it() -> None:
    check_plan({T0: (1, 0)}, CURRENT, {1, 2})


def test_topics_to_move_are_named_once_each() -> None:
    assert read_topics_to_move('{"version":1,"topics":[{"topic":"t"},{"topic":"u"}]}') == ["t", "u"]
    with pytest.raises(ReassignmentError, match="duplicate entries: t"):
        read_topics_to_move('{"topics":[{"topic":"t"},{"topic":"t"}]}')
    with pytest.raises(ReassignmentError, match="no topic to move"):
        read_topics_to_move('{"topics":[]}')


def test_partitions_to_elect_for_are_named_once_each() -> None:
    entries = '{"topic":"t","partition":0}'
    assert read_partitions(f'{{"partitions":[{entries}]}}') == [T0]
    with pytest.raises(ReassignmentError, match="t-0"):
        read_partitions(f'{{"partitions":[{entries},{entries}]}}')


def test_what_is_proposed_keeps_the_number_of_replicas_on_the_brokers_that_were_named() -> None:
    racks = dict.fromkeys((0, 1, 2, 3, 4))
    proposed = propose_plan([TOPIC], (3, 4, 0), racks, lambda n: 0)
    assert proposed == {T0: (0, 3), T1: (3, 4)}
    assert build_current_plan([TOPIC]) == CURRENT


def test_racks_are_kept_apart_in_what_is_proposed() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    proposed = propose_plan([TOPIC], (0, 1, 2, 3), racks, lambda n: 1)
    assert all(
        {racks[broker] for broker in replicas} == {"a", "b"} for replicas in proposed.values()
    )


def test_nothing_is_proposed_for_a_broker_that_is_not_there() -> None:
    with pytest.raises(ReassignmentError, match="brokerIDs: 9"):
        propose_plan([TOPIC], (0, 9), dict.fromkeys((0, 1)), lambda n: 0)


def test_topic_with_more_replicas_than_there_are_brokers_is_named() -> None:
    with pytest.raises(ApiError, match=r"FACTOR: topic t: Replication factor: 2 larger than avail"):
        propose_plan([TOPIC], (0,), {0: None}, lambda n: 0)


def test_only_what_moves_is_slowed_down_where_it_is_sent_and_where_it_is_fetched() -> None:
    throttle = plan_throttle({T0: (1, 5), T1: (2, 1)}, CURRENT)
    assert throttle.brokers == {0, 1, 5}
    assert throttle.topic_configs == {
        "t": {
            "leader.replication.throttled.replicas": "0:0,0:1",
            "follower.replication.throttled.replicas": "0:5",
        }
    }


@pytest.mark.parametrize(
    ("current", "moving", "status"),
    [
        ({T0: (1, 2)}, {}, Status.COMPLETE),
        ({T0: (2, 1)}, {}, Status.NOT_ACTIVE),
        ({T0: (0, 1, 2)}, {T0: MOVING}, Status.IN_PROGRESS),
        ({T1: (1, 2)}, {}, Status.MISSING),
    ],
)
def test_a_partition_has_arrived_moves_stands_elsewhere_or_is_not(
    current: dict[TopicPartition, tuple[int, ...]],
    moving: dict[TopicPartition, PartitionReassignment],
    status: Status,
) -> None:
    assert find_status(T0, (1, 2), current, moving) is status


def test_each_state_has_kafkas_sentence() -> None:
    item = {"topic": "t", "partition": 0, "replicas": (0, 1), "target": (1, 2)}
    assert [format_status(item | {"state": state}) for state in Status] == [
        "Reassignment of partition t-0 is complete.",
        "Reassignment of partition t-0 is still in progress.",
        "There is no active reassignment of partition t-0, but replica set is 0,1 rather than 1,2.",
        "There is no partition t-0.",
    ]


def test_progress_counts_what_comes_up_to_the_leaders_size() -> None:
    moving = PartitionReassignment((0, 1, 2, 3), (2, 3), (0,))
    sizes = {(T0, 0): 100, (T0, 1): 100, (T0, 2): 40, (T0, 3): 130}
    assert measure_progress(T0, 0, moving, sizes) == CopyProgress(copied_bytes=140, total_bytes=200)
    assert measure_progress(T0, -1, moving, sizes) == CopyProgress(0, 0)


@pytest.mark.parametrize(
    ("before", "now", "left_ms"),
    [(20, 40, 3000), (40, 40, None), (60, 40, None), (0, 100, 0)],
)
def test_time_left_is_told_while_something_moves(
    before: int, now: int, left_ms: int | None
) -> None:
    assert estimate_time_left_ms(CopyProgress(before, 100), CopyProgress(now, 100), 1000) == left_ms


def test_the_pace_is_measured_from_look_to_look() -> None:
    times = iter([10.0, 12.0])
    pace = CopySpeed(lambda: next(times))
    done: dict[str, object] = {"state": Status.COMPLETE, "copied_bytes": None, "total_bytes": None}

    def at(copied: int) -> list[dict[str, object]]:
        moving = {"state": Status.IN_PROGRESS, "copied_bytes": copied, "total_bytes": 100}
        return [done, moving]

    assert pace.line(at(10)) == "1 of 2 partitions done, 10 of 100 bytes of the rest copied"
    assert pace.line(at(30)) == (
        "1 of 2 partitions done, 30 of 100 bytes of the rest copied, about 7 s left"
    )
