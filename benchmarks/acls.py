"""Measure what an authorizer costs small produce requests, and Metadata of many topics.

Each side has two brokers, one with ACLs and one without an authorizer. They work one after the
other in a round, and its figure is that of the first over that of the second. The ACLs give the
client, who has not logged in, all topics by their prefixes, ten topics by each. The topics are in
the metadata alone, which a played controller sends.
"""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import attrs

from benchmarks.brokers import Broker, Installation, Side, install
from benchmarks.load import LoadError, ask, connect
from benchmarks.produce import COMPILED_AFTER_S, SMALL_BATCHES, produce
from benchmarks.rounds import Rounds, alternate
from benchmarks.stage import LEADER, VERSIONS, Stage, encode, set_stage
from benchmarks.table import Row, Wanted, at_most
from broker.kbroker.over_zookeeper import OverZooKeeper
from clients.admin import AclBinding, AclEntry, Admin
from protocol.acls import CLUSTER_NAME, Operation, PatternType, ResourcePattern, ResourceType
from protocol.api_key import ApiKey
from protocol.header import read_response
from protocol.messages.metadata import MetadataRequest
from zk.session import KazooSession

TOPICS, ACLS = 10_000, 1_000
WRITE_TIMEOUT_MS = 30_000
_CLIENT, _OTHER = "User:ANONYMOUS", "User:somebody-else"
_AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
_ALL_TOPICS = encode(MetadataRequest(topics=None))
_changes = itertools.count()


@attrs.frozen
class Pair:
    """The brokers of one side: with ACLs, and without an authorizer."""

    guarded: Stage
    unguarded: Stage


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield rows of what ACLs cost a produce and a Metadata request, and of the latter's cache."""
    with contextlib.ExitStack() as stack:
        pairs = []
        for number, side in enumerate(sides):
            guarded = install(side, directory / f"acls-{number}", f"acls-{number}", _AUTHORIZER)
            asyncio.run(_write_acls(guarded))
            unguarded = install(side, directory / f"unguarded-{number}", f"unguarded-{number}")
            pair = Pair(
                stack.enter_context(set_stage(guarded)), stack.enter_context(set_stage(unguarded))
            )
            pairs.append(pair)

        # A JVM compiles its code before the first round.
        for stage in _stages(pairs):
            produce(stage.broker, SMALL_BATCHES, COMPILED_AFTER_S)
        rate, cpu = alternate([partial(_compare, pair, _produce) for pair in pairs], rounds)
        title = f"{SMALL_BATCHES.question}: rate with {ACLS:,} ACLs over that without an authorizer"
        yield Row(title, "×", Wanted("≥", 0.95, "×"), rate)
        title = f"broker CPU of one with {ACLS:,} ACLs over that without an authorizer"
        yield Row(title, "×", at_most(1.05, "×"), cpu)

        # From here on the brokers take nothing from their real controllers.
        topics = {f"topic-{number:04}": 1 for number in range(TOPICS)}
        for stage in _stages(pairs):
            stage.know(topics, LEADER)
            _check_metadata(stage.broker)
        (cost,) = alternate([partial(_compare, pair, _ask_for_all) for pair in pairs], rounds)
        title = f"Metadata of {TOPICS:,} topics: time with {ACLS:,} ACLs"
        yield Row(f"{title} over that without an authorizer", "×", at_most(1.5, "×"), cost)

        (first,) = alternate([partial(_time_after_change, pair.guarded) for pair in pairs], rounds)
        yield Row(f"{title}, the first after a change of ACLs", "ms", at_most(1.0), first)


def _stages(pairs: Sequence[Pair]) -> Iterator[Stage]:
    for pair in pairs:
        yield from (pair.guarded, pair.unguarded)


async def _write_acls(place: Installation) -> None:
    """Write ACLs, the broker's own and the client's, before the broker starts."""
    topics = [
        ResourcePattern(ResourceType.TOPIC, f"topic-{number:03}", PatternType.PREFIXED)
        for number in range(ACLS)
    ]
    others = [
        ResourcePattern(ResourceType.TOPIC, "benchmark-", PatternType.PREFIXED),
        ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME),
    ]
    zk = KazooSession(place.zookeeper, create_chroot=True)
    await zk.start()
    try:
        await OverZooKeeper(zk, WRITE_TIMEOUT_MS).create_acls(
            [AclBinding(pattern, AclEntry(_CLIENT, Operation.DESCRIBE)) for pattern in topics]
            + [AclBinding(pattern, AclEntry(_CLIENT, Operation.ALL)) for pattern in others]
        )
    finally:
        await zk.close()


def _compare(
    pair: Pair, measure_one: Callable[[Broker, float], tuple[float, ...]], seconds: float
) -> tuple[float, ...]:
    """Return each figure with ACLs over that without an authorizer, half of the time each."""
    guarded = measure_one(pair.guarded.broker, seconds / 2)
    unguarded = measure_one(pair.unguarded.broker, seconds / 2)
    return tuple(ours / others for ours, others in zip(guarded, unguarded, strict=True))


def _produce(broker: Broker, seconds: float) -> tuple[float, float]:
    """Return requests a second, and the processor time of one."""
    rate, cores = produce(broker, SMALL_BATCHES, seconds)
    return rate, cores / rate


def _ask_for_all(broker: Broker, seconds: float) -> tuple[float]:
    """Return the time of a request."""
    times_s = []
    ends = time.perf_counter() + seconds
    with connect(broker.address) as connection:
        while not times_s or time.perf_counter() < ends:
            times_s.append(_time_request(connection))
    return (median(times_s),)


def _time_request(connection: socket.socket) -> float:
    begins = time.perf_counter()
    ask(connection, _ALL_TOPICS)
    return time.perf_counter() - begins


def _time_after_change(stage: Stage, seconds: float) -> tuple[float]:
    """Return the milliseconds of a request that comes first after a change of ACLs."""
    broker = stage.broker
    times_s = []
    ends = time.perf_counter() + seconds
    with connect(broker.address) as connection:
        while not times_s or time.perf_counter() < ends:
            broker.administer(_change_acls)
            times_s.append(_time_request(connection))
    return (median(times_s) * 1000,)


async def _change_acls(admin: Admin) -> None:
    """Add an ACL for somebody else."""
    pattern = ResourcePattern(ResourceType.TOPIC, f"other-{next(_changes)}")
    added = await admin.create_acls([AclBinding(pattern, AclEntry(_OTHER, Operation.DESCRIBE))])
    if any(added.values()):
        raise LoadError(f"an ACL is not added: {added}")


def _check_metadata(broker: Broker) -> None:
    """Raise LoadError unless the client sees all topics."""
    with connect(broker.address) as connection:
        frame = ask(connection, _ALL_TOPICS)
    _, response = read_response(ApiKey.METADATA, VERSIONS[ApiKey.METADATA], frame)
    if len(response.topics) < TOPICS:
        raise LoadError(f"{broker.name} shows {len(response.topics)} topics of {TOPICS}")
