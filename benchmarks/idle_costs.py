"""Measure what idle things cost a broker: the same small work among more and more of them.

The questions: a follower fetches a record among idle partitions; a record is produced while others
wait for replication; a follower opens connections as it follows more partitions; members of a group
compute an assignment in which few members want the same topic. The peer's place has an earlier
state of this tree, if one is named (`--before PATH`).
"""

import contextlib
import itertools
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.brokers import Side, install
from benchmarks.load import connect
from benchmarks.rounds import Rounds
from benchmarks.stage import LEADER, LOCAL, Stage, encode, set_stage
from benchmarks.table import Beside, Row, at_most
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.builder import encode_batch

IDLE = (300, 1_000, 3_300, 10_000)

# Of a broker that keeps a file of each log open.
DESCRIPTORS_A_LOG = 1
WAITING = (50, 200, 1_000)
MEMBERS = (50, 200, 1_000)
NEW_TOPICS = 20
TOPIC = "t"
_LESS = at_most(1.25)
_PATIENT = {"replica.lag.time.max.ms": "3600000"}
"""No replica leaves the ISR while many logs are created."""
_BATCH = encode_batch([(time.time_ns() // 1_000_000, None, b"x" * 100, ())])

# The Python of each side's checkout runs this, with the code of that checkout.
_ASSIGNMENT = """
import sys, time
from groups.zookeeper.assignment import assign_round_robin
members = int(sys.argv[1])
threads = {
    f"topic-{t}": {f"group_{m:04}-0" for m in (t % members, t * 7 % members)}
    for t in range(1000)
}
partitions = {topic: range(4) for topic in threads}
began = time.process_time()
assign_round_robin(threads, partitions)
print(time.process_time() - began)
"""

_numbers = itertools.count()

Figures = list[tuple[float, ...]]


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield a row for each question and number of idle things."""
    before = " · before" if len(sides) > 1 else ""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    # A record among idle partitions.
    for partitions in IDLE:
        if partitions * DESCRIPTORS_A_LOG >= descriptors:
            continue  # more files than a broker may open
        costs = _measure_sides(sides, directory, partial(_measure_fetch, partitions, rounds))
        title = f"CPU of a record replicated among {partitions:,} idle partitions{before}"
        yield Row(title, "µs", _LESS, costs, beside=Beside.BEFORE)

    # A record among waiting requests.
    for waiting in WAITING:
        costs = _measure_sides(sides, directory, partial(_measure_produce, waiting, rounds))
        title = f"CPU of a record produced while {waiting:,} wait on the partition{before}"
        yield Row(title, "µs", _LESS, costs, beside=Beside.BEFORE)

    # Connections of a follower.
    connections = _measure_sides(sides, directory, _count_connections)
    title = f"connections to a leader after {NEW_TOPICS} LeaderAndIsr with a new partition{before}"
    yield Row(title, "connections", _LESS, connections, beside=Beside.BEFORE)

    # The assignment of a large group.
    for members in MEMBERS:
        costs = [
            tuple(_time_assignment_ms(side, members) for _ in range(rounds.number))
            for side in sides
        ]
        title = f"round robin among {members:,} members, two of which want each topic{before}"
        yield Row(title, "ms", _LESS, costs, beside=Beside.BEFORE)


def _measure_sides(
    sides: Sequence[Side], directory: Path, measure_stage: Callable[[Stage], tuple[float, ...]]
) -> Figures:
    """Measure a fresh broker of each side."""
    figures = []
    for side in sides:
        name = f"idle-{next(_numbers)}"
        place = install(side, directory / name, f"{directory.name}-{name}", _PATIENT)
        try:
            with set_stage(place) as stage:
                figures.append(measure_stage(stage))
        finally:
            shutil.rmtree(place.directory)
    return figures


def _measure_fetch(partitions: int, rounds: Rounds, stage: Stage) -> tuple[float, ...]:
    stage.lead({TOPIC: partitions}, (LOCAL, LEADER))
    stage.know({TOPIC: partitions}, LOCAL)
    wanted = partial(FetchRequest, replica_id=LEADER, max_wait_ms=0, min_bytes=1)

    # A full fetch with epoch 0 opens a session of all partitions (KIP-227).
    session = stage.call(wanted(session_epoch=0, topics=[_wanted_topic(partitions)])).session_id
    epochs = itertools.count(1)

    def work() -> None:
        epoch = next(epochs)
        stage.produce(TOPIC, 1, _BATCH)

        # Within the session a fetch names only what moved.
        moved = [_wanted_topic(1, epoch - 1)]
        stage.call(wanted(session_id=session, session_epoch=epoch, topics=moved))

    return _micros(stage, work, rounds)


def _measure_produce(waiting: int, rounds: Rounds, stage: Stage) -> tuple[float, ...]:
    stage.lead({TOPIC: 1}, (LOCAL, LEADER))
    stage.know({TOPIC: 1}, LOCAL)
    partition = ProduceRequestPartition(index=0, records=_BATCH)
    data = [ProduceRequestTopic(name=TOPIC, partition_data=[partition])]

    # The follower never fetches, so these requests wait to the end.
    request = encode(ProduceRequest(acks=-1, timeout_ms=600_000, topic_data=data))
    with contextlib.ExitStack() as opened:
        # Each on a connection of its own: a connection has one request in flight.
        for _ in range(waiting):
            opened.enter_context(connect(stage.broker.address)).sendall(request)
        return _micros(stage, partial(stage.produce, TOPIC, 1, _BATCH), rounds)


def _count_connections(stage: Stage) -> tuple[float, ...]:
    # The follower learns the leader's address.
    stage.know({}, LEADER)
    for nth in range(NEW_TOPICS):
        stage.follow({f"{TOPIC}-{nth}": 1}, is_new=True)

        # The next LeaderAndIsr comes when this one has had its effect.
        stage.until(partial(_has_fetched, stage, nth + 1))
    return (float(stage.leader.connections),)


def _has_fetched(stage: Stage, topics: int) -> bool:
    return len(stage.leader.topics) == topics


def _time_assignment_ms(side: Side, members: int) -> float:
    command = [*side.python, "-c", _ASSIGNMENT, str(members)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout) * 1000


def _micros(stage: Stage, work: Callable[[], None], rounds: Rounds) -> tuple[float, ...]:
    """Measure the event loop's processor time for a piece of work, in each round."""
    # Once before the clock starts.
    work()
    figures = []
    for _ in range(rounds.number):
        done = 0

        # Processor time of the loop's thread: waiting and helper threads do not count.
        cpu_s = stage.broker.process.loop_cpu_s
        began = time.perf_counter()
        while time.perf_counter() < began + rounds.seconds:
            work()
            done += 1
        figures.append((stage.broker.process.loop_cpu_s - cpu_s) / done * 1e6)
    return tuple(figures)


def _wanted_topic(partitions: int, offset: int = 0) -> FetchRequestTopic:
    wanted = [
        FetchRequestPartition(partition=p, fetch_offset=offset, partition_max_bytes=2**20)
        for p in range(partitions)
    ]
    return FetchRequestTopic(topic=TOPIC, partitions=wanted)
