"""Plans name log directories; replicas are moved there and reported."""

from __future__ import annotations

import json

import attrs
import pytest

from broker.kbroker.reassign.plan import ReassignmentError
from broker.kbroker.reassign.replica_places import (
    Places,
    PlaceStatus,
    begin_moves,
    check_places,
    format_places,
    locate_replicas,
    read_places,
)
from clients.admin.descriptions import (
    LogDirDescription,
    ReplicaDescription,
    TopicPartitionReplica,
)
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

P0 = TopicPartition("t", 0)
ONE, TWO = TopicPartitionReplica(P0, 1), TopicPartitionReplica(P0, 2)


def log_dirs(**replicas: ReplicaDescription | None) -> dict[str, LogDirDescription]:
    """Make directories /a, /b, … each with this replica of the partition P0, if any."""
    return {
        f"/{name}": LogDirDescription(ErrorCode.NONE, {P0: replica} if replica else {})
        for name, replica in replicas.items()
    }


def current(size: int = 100) -> ReplicaDescription:
    return ReplicaDescription(size, 0, False)


def future(size: int = 30) -> ReplicaDescription:
    return ReplicaDescription(size, 7, True)


def test_only_directories_that_are_named_are_places() -> None:
    text = json.dumps(
        {
            "version": 1,
            "partitions": [
                {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/b"]},
                {"topic": "t", "partition": 1, "replicas": [1]},
            ],
        }
    )
    assert read_places(text) == {TWO: "/b"}


@pytest.mark.parametrize(
    ("log_dirs_of_broker", "status", "sentence"),
    [
        (
            log_dirs(a=None, b=current()),
            PlaceStatus.COMPLETE,
            "Reassignment of replica t-0-1 completed successfully.",
        ),
        (
            log_dirs(a=current(), b=future()),
            PlaceStatus.IN_PROGRESS,
            "Reassignment of replica t-0-1 is still in progress.",
        ),
        (
            log_dirs(a=current(), b=None, c=future()),
            PlaceStatus.ELSEWHERE,
            "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.",
        ),
        (
            log_dirs(a=current(), b=None),
            PlaceStatus.NOT_ACTIVE,
            "Partition t-0 on broker 1 is not being moved from log dir /a to /b.",
        ),
        (
            log_dirs(a=None, b=None),
            PlaceStatus.MISSING,
            "Partition t-0 is not found in any live log dir on broker 1. "
            "There is likely an offline log directory on the broker.",
        ),
    ],
)
def test_each_replica_is_told_of_in_kafkas_words(
    log_dirs_of_broker: dict[str, LogDirDescription], status: PlaceStatus, sentence: str
) -> None:
    (replica,) = locate_replicas({ONE: "/b"}, {1: log_dirs_of_broker})
    assert (replica.status, replica.sentence) == (status, sentence)


def test_bytes_are_those_of_the_copy_and_never_more_than_there_are() -> None:
    (moving,) = locate_replicas({ONE: "/b"}, {1: log_dirs(a=current(), b=future(30))})
    assert (moving.copied_bytes, moving.total_bytes) == (30, 100)
    (larger,) = locate_replicas({ONE: "/b"}, {1: log_dirs(a=current(), b=future(130))})
    assert (larger.copied_bytes, larger.total_bytes) == (100, 100)
    (there,) = locate_replicas({ONE: "/b"}, {1: log_dirs(b=current())})
    assert (there.copied_bytes, there.total_bytes) == (0, 0)


def test_a_broker_that_does_not_answer_has_no_replica() -> None:
    (replica,) = locate_replicas({ONE: "/b"}, {})
    assert replica.status is PlaceStatus.MISSING


def test_for_people_and_for_machines() -> None:
    (replica,) = locate_replicas({ONE: "/b"}, {1: log_dirs(a=current(), b=future())})
    assert replica.to_item() == {
        "broker": 1,
        "log_dir": "/b",
        "current_log_dir": "/a",
        "future_log_dir": "/b",
        "state": "in_progress",
    }
    assert format_places([replica.to_item()]) == "1:/b (in_progress)"
    assert format_places([]) == "-"


def test_directories_that_a_broker_has_not_or_cannot_use_are_named_before_anything_moves() -> None:
    there = log_dirs(a=current(), b=None)
    check_places({ONE: "/b"}, {1: there})
    with pytest.raises(ReassignmentError, match="broker 1 has no log directory '/x', only /a, /b"):
        check_places({ONE: "/x"}, {1: there})
    offline = {"/b": LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {})}
    with pytest.raises(ReassignmentError, match="t-0: '/b' is offline on broker 1"):
        check_places({ONE: "/b"}, {1: offline})


@attrs.define(eq=False)
class Brokers:
    """Brokers of which 1 has its replica; 2 creates its own after `late_by` requests."""

    late_by: int
    requests: list[Places] = attrs.field(factory=list)

    async def place_replicas(self, places: Places) -> dict[TopicPartitionReplica, ApiError | None]:
        self.requests.append(places)
        late = len(self.requests) <= self.late_by
        error = ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, "it is to come") if late else None
        return {replica: error if replica == TWO else None for replica in places}


@pytest.mark.virtual_time
async def test_a_replica_that_is_to_come_is_asked_for_until_it_is_there() -> None:
    brokers = Brokers(late_by=2)
    verdicts = await begin_moves(brokers, {ONE: "/b", TWO: "/b"}, 10_000, make_clock(brokers))  # type: ignore[arg-type]
    assert verdicts == {ONE: None, TWO: None}
    assert brokers.requests == [{ONE: "/b", TWO: "/b"}, {TWO: "/b"}, {TWO: "/b"}]


@pytest.mark.virtual_time
async def test_a_replica_that_does_not_come_is_given_up_when_time_is_over() -> None:
    brokers = Brokers(late_by=1000)
    verdicts = await begin_moves(brokers, {ONE: "/b", TWO: "/b"}, 3_000, make_clock(brokers))  # type: ignore[arg-type]
    assert verdicts[ONE] is None
    error = verdicts[TWO]
    assert error is not None
    assert error.code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert len(brokers.requests) == 3


def make_clock(brokers: Brokers):  # type: ignore[no-untyped-def]
    """Return a clock that advances one second with each request."""
    return lambda: float(len(brokers.requests))
