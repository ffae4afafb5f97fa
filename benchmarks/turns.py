"""Measure for how long an event stops the broker's event loop, as other clients see it.

Each scene is played on a broker of its own, which is prepared for it; meanwhile a `probe` sends
cheap requests. The second place has an earlier state of this tree, if one is named (`--before
PATH`), with the same scenes in the same run.

Some scenes need another disk, or hours, and are not here: appends while the page cache is full of
dirty pages, reads of data that has left it, a flush of the leader epochs of thousands of logs, and
the wait for a checkpoint that another thread is writing.
"""

import asyncio
import contextlib
import functools
import itertools
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Installation, Side, install
from benchmarks.clusters import Cluster, start_cluster
from benchmarks.load import FrameCounter, LoadError, connect
from benchmarks.probe import probe_broker
from benchmarks.rounds import Rounds
from benchmarks.stage import (
    LEADER,
    LOCAL,
    PATIENCE_MS,
    PATIENCE_S,
    POLL_S,
    Stage,
    Topics,
    encode,
    set_stage,
)
from benchmarks.table import Beside, Row, at_most
from benchmarks.written_log import write_log
from clients.admin import Admin, ConfigResource, NewTopic
from core_log.checkpoint import CLEANER_OFFSETS, CheckpointError, decode_offsets
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.records.batch import Codec
from protocol.records.builder import BatchBuilder, encode_batch
from zk.api import get_if_there
from zk.znodes import Controller

Act = Callable[[], None]

LONGEST = at_most(20, "ms")
LOG_BYTES = 256 * 2**20
BATCH_BYTES = 1024

# Numbers of partitions, large enough for work on each to add up.
LOGS, CLEANED, NEW_LOGS, FOLLOWED, KNOWN = 1_000, 300, 2_000, 3_000, 10_000
SMALL_SEGMENT_BYTES = 600
"""A segment has room for one batch of `_make_batch`, not for two."""
TIMED_RECORDS = 2_000

# Below MAX_PRODUCED_BYTES, so the broker accepts it.
BOMB_BYTES = 60 * 2**20
MANY_RECORDS = 1_000_000
FRAMES_BEGUN = 10
FRAME_BYTES = 100 * 10**6
PIPELINED_BYTES = 256 * 1024
AGAIN = 5
AFTERMATH_S = 1.0
"""The probe runs so long after an event, to see what follows from it."""
TOPIC = "t"
_NOW_MS = time.time_ns() // 1_000_000
_EXPIRED_SETTING, _DIRTY_SETTING = "log.retention.ms", "log.cleaner.min.cleanable.ratio"
_SMALL_SEGMENTS = {"log.segment.bytes": str(SMALL_SEGMENT_BYTES)}

_numbers = itertools.count()


@attrs.frozen
class Scene:
    """An event: `prepare` sets it up and returns the act that is measured."""

    title: str
    prepare: Callable[[Stage], Act]
    settings: Mapping[str, str] = {}


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield for each scene the longest stop and the sum of all; then the stop of a controller."""
    for scene in SCENES:
        longest, stops = play_in_turns(
            [partial(_play, scene, side, directory) for side in sides], rounds.number
        )
        title = f"{scene.title}{_BEFORE if len(sides) > 1 else ''}"
        yield Row(f"{title}: longest stop", "ms", LONGEST, longest, beside=Beside.BEFORE)
        yield Row(f"{title}: stops above 20 ms, together", "ms", None, stops, beside=Beside.BEFORE)
    (seconds,) = play_in_turns([partial(_stop, side, directory) for side in sides], rounds.number)
    title = f"a controller with {NEW_LOGS:,} logs stops{_BEFORE if len(sides) > 1 else ''}"
    yield Row(f"{title}: until another one rules", "s", None, seconds, beside=Beside.BEFORE)


_BEFORE = " · before"


def play_in_turns(
    contestants: Sequence[Callable[[], tuple[float, ...]]], rounds: int
) -> list[list[tuple[float, ...]]]:
    """Play as `rounds.alternate` does, but without warm-up: every broker here is new."""
    turns = [[contestant() for contestant in contestants] for _ in range(rounds)]
    by_contestant = [list(zip(*figures, strict=True)) for figures in zip(*turns, strict=True)]
    return [list(figure) for figure in zip(*by_contestant, strict=True)]


def _play(scene: Scene, side: Side, directory: Path) -> tuple[float, float]:
    """Play a scene; return the longest wait and the sum of all stops, in ms."""
    place = _install(side, directory, scene.settings)
    try:
        with set_stage(place) as stage:
            # The preparation and what follows from it are over before the probe begins.
            act = scene.prepare(stage)
            time.sleep(AFTERMATH_S)
            with probe_broker(stage.broker) as waits:
                act()
                time.sleep(AFTERMATH_S)
            return waits.longest_ms, waits.stops_ms
    finally:
        shutil.rmtree(place.directory)


def _install(side: Side, directory: Path, settings: Mapping[str, str]) -> Installation:
    name = f"stage-{next(_numbers)}"
    return install(side, directory / name, f"{directory.name}-{name}", settings)


# ---- the scenes


def _prepare_demotion(stage: Stage) -> Act:
    """Demote a leader after a clean restart; it has a batch that the new leader lacks."""
    # The leader lacks the last batch, so the follower has to truncate.
    batches = _lay_log(stage)
    stage.leader.end_offset = batches - 1

    def act() -> None:
        stage.follow({TOPIC: 1})

        # It fetches from there when it has truncated.
        stage.until(lambda: batches - 1 in stage.leader.fetched)

    return act


def _create_logs(stage: Stage) -> Act:
    return lambda: stage.lead({TOPIC: NEW_LOGS})


def _create_topics(stage: Stage) -> Act:
    topics = {f"{TOPIC}-{nth}": 2 for nth in range(NEW_LOGS // 2)}
    return lambda: stage.lead(topics)


def _begin_to_follow(stage: Stage) -> Act:
    _lead(stage, NEW_LOGS)
    return lambda: stage.follow({TOPIC: NEW_LOGS})


def _roll(stage: Stage) -> Act:
    _fill(stage, 1)

    # Each log has a full segment.
    return lambda: stage.produce(TOPIC, LOGS, _make_batch())


def _retain(stage: Stage) -> Act:
    _fill(stage, 3)

    def act() -> None:
        # All segments but the active one are old enough at once.
        _alter(stage, _EXPIRED_SETTING, "1")
        stage.until(lambda: all(len(_list_segments(stage, p)) == 1 for p in range(LOGS)))

    return act


def _delete_records(stage: Stage) -> Act:
    _fill(stage, 3)

    # -1 is the high watermark: everything goes.
    partitions = [DeleteRecordsRequestPartition(partition_index=p, offset=-1) for p in range(LOGS)]
    topics = [DeleteRecordsRequestTopic(name=TOPIC, partitions=partitions)]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=30_000)
    return lambda: stage.call(request)


def _delete_topic(stage: Stage) -> Act:
    _fill(stage, 3)

    def act() -> None:
        stage.delete({TOPIC: LOGS})
        stage.until(lambda: not list(stage.place.log_directory.glob(f"{TOPIC}-*")))

    return act


def _clean(stage: Stage) -> Act:
    _fill(stage, 4, CLEANED)

    def act() -> None:
        # All logs are dirty enough at once.
        _alter(stage, _DIRTY_SETTING, "0")
        checkpoint = stage.place.log_directory / CLEANER_OFFSETS
        stage.until(lambda: _count_cleaned(checkpoint) == CLEANED)

    return act


def _take_bomb(stage: Stage) -> Act:
    _lead(stage, 1)
    return lambda: stage.produce(TOPIC, 1, _make_bomb())


def _take_many_records(stage: Stage) -> Act:
    _lead(stage, 1)
    return lambda: stage.produce(TOPIC, 1, _make_many_records())


def _look_times_up(stage: Stage) -> Act:
    _lead(stage, LOGS)

    # The time is in the middle of a batch, which must be decompressed to find it.
    builder = BatchBuilder(Codec.GZIP)
    for nth in range(TIMED_RECORDS):
        builder.try_append(_NOW_MS + nth, None, b"value")
    stage.produce(TOPIC, LOGS, builder.build())
    time_ms = _NOW_MS + TIMED_RECORDS // 2
    partitions = [
        ListOffsetsRequestPartition(partition_index=p, timestamp=time_ms) for p in range(LOGS)
    ]
    topics = [ListOffsetsRequestTopic(name=TOPIC, partitions=partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    return lambda: stage.call(request)


def _begin_frames(stage: Stage) -> Act:
    def act() -> None:
        with contextlib.ExitStack() as opened:
            for _ in range(FRAMES_BEGUN):
                connection = opened.enter_context(connect(stage.broker.address))

                # A size without a body: the broker must not allocate for what it only announces.
                connection.sendall(FRAME_BYTES.to_bytes(4, "big"))
            time.sleep(AFTERMATH_S)

    return act


def _pipeline(stage: Stage) -> Act:
    stage.know({TOPIC: 1}, LEADER)
    request = encode(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    number = PIPELINED_BYTES // len(request)

    def act() -> None:
        with connect(stage.broker.address) as connection:
            connection.sendall(request * number)
            _take_responses(connection, number)

    return act


def _fetch_all(stage: Stage) -> Act:
    _lead(stage, FOLLOWED, (LOCAL, LEADER))
    request = FetchRequest(
        replica_id=LEADER,
        max_wait_ms=0,
        min_bytes=1,
        # A full fetch outside any session (KIP-227).
        session_epoch=-1,
        topics=[_wanted_topic(range(FOLLOWED), 0)],
    )
    return partial(_call_again, stage, request, AGAIN)


def _fetch_news(stage: Stage) -> Act:
    """Open a fetch session of all partitions; each round brings one of them a batch."""
    _lead(stage, FOLLOWED, (LOCAL, LEADER))
    wanted = partial(FetchRequest, replica_id=LEADER, max_wait_ms=0, min_bytes=1)
    session = stage.call(
        # Epoch 0 opens a session.
        wanted(session_epoch=0, topics=[_wanted_topic(range(FOLLOWED), 0)])
    ).session_id

    def act() -> None:
        for offset in range(AGAIN):
            stage.produce(TOPIC, 1, _make_batch())

            # Within the session the fetch names the one partition that moved.
            moved = [_wanted_topic(range(1), offset)]
            stage.call(wanted(session_id=session, session_epoch=offset + 1, topics=moved))

    return act


def _learn_metadata(stage: Stage) -> Act:
    return lambda: stage.know(_known_topics(), LEADER)


def _ask_for_metadata(stage: Stage) -> Act:
    """Request metadata, each time after a change."""
    stage.know(_known_topics(), LEADER)

    def act() -> None:
        for _ in range(AGAIN):
            stage.know({TOPIC: 1}, LEADER)
            stage.call(MetadataRequest(topics=None))

    return act


def _create_and_delete_topic(stage: Stage) -> Act:
    """Create and delete a topic; the controller is the real one, the broker itself."""

    async def create(admin: Admin) -> None:
        refusals = await admin.create_topics([NewTopic(TOPIC, NEW_LOGS, 1)])
        if refusals[TOPIC]:
            raise LoadError(f"the topic is not created: {refusals[TOPIC]}")

    async def delete(admin: Admin) -> None:
        await admin.delete_topics([TOPIC])

    def count_directories() -> int:
        return len(list(stage.place.log_directory.glob(f"{TOPIC}-*")))

    def act() -> None:
        # Through the disk: directories show when the broker is done.
        stage.broker.administer(create, PATIENCE_MS)
        stage.until(lambda: count_directories() == NEW_LOGS)
        stage.broker.administer(delete, PATIENCE_MS)
        stage.until(lambda: count_directories() == 0)

    return act


SCENES = (
    # Leaders and followers that begin, change or end.
    Scene(f"a leader of {LOG_BYTES >> 20} MB in batches of 1 KB is demoted", _prepare_demotion),
    Scene(f"LeaderAndIsr with {NEW_LOGS:,} new logs", _create_logs),
    Scene(f"LeaderAndIsr with {NEW_LOGS // 2:,} new topics of 2 logs", _create_topics),
    Scene(f"{NEW_LOGS:,} logs begin to follow", _begin_to_follow),
    Scene(f"a topic of {NEW_LOGS:,} partitions comes and goes", _create_and_delete_topic),
    # Segments that begin, end and are cleaned.
    Scene(f"{LOGS:,} logs roll in one request", _roll, _SMALL_SEGMENTS),
    Scene(
        f"retention of {LOGS:,} logs",
        _retain,
        {**_SMALL_SEGMENTS, _EXPIRED_SETTING: "-1", "log.retention.check.interval.ms": "1000"},
    ),
    Scene(f"DeleteRecords of {LOGS:,} logs", _delete_records, _SMALL_SEGMENTS),
    Scene(f"{LOGS:,} logs are deleted", _delete_topic, _SMALL_SEGMENTS),
    Scene(
        f"{CLEANED:,} logs are cleaned",
        _clean,
        {
            **_SMALL_SEGMENTS,
            "log.cleanup.policy": "compact",
            "log.cleaner.backoff.ms": "100",
            _DIRTY_SETTING: "1",
        },
    ),
    # Batches that decompress to much.
    Scene(f"a batch decompresses to {BOMB_BYTES >> 20} MB", _take_bomb),
    Scene(
        f"a batch of {MANY_RECORDS:,} records",
        _take_many_records,
        {"message.max.bytes": str(100 * 2**20)},
    ),
    Scene(f"ListOffsets by time in compressed batches of {LOGS:,} partitions", _look_times_up),
    # Connections that send much.
    Scene(f"{FRAMES_BEGUN} frames of 100 MB begin", _begin_frames),
    Scene(f"{PIPELINED_BYTES >> 10} KB of requests arrive at once", _pipeline),
    # Requests about many partitions.
    Scene(f"a follower's first fetch of {FOLLOWED:,} partitions", _fetch_all),
    Scene(f"a follower's fetch of news of {FOLLOWED:,} partitions", _fetch_news),
    Scene(f"UpdateMetadata of {KNOWN:,} partitions", _learn_metadata),
    Scene(f"Metadata of {KNOWN:,} partitions, each time after a change", _ask_for_metadata),
)


# ---- a controller that stops


def _stop(side: Side, directory: Path) -> tuple[float]:
    """Stop a controller that leads many logs; return the seconds from SIGTERM to another one."""
    with start_cluster(side, directory) as cluster:
        return (asyncio.run(_stop_controller(cluster)),)


async def _stop_controller(cluster: Cluster) -> float:
    async with cluster.observe() as zk:
        content, _ = await zk.get(Controller.path())
        controller = Controller.decode(content).broker_id

        async with cluster.admin() as admin:
            topic = NewTopic(TOPIC, assignments=dict.fromkeys(range(NEW_LOGS), (controller,)))
            if refusal := (await admin.create_topics([topic]))[TOPIC]:
                raise LoadError(f"the topic is not created: {refusal}")

        # The controller has the only replica of each log, and closes them all when it stops.
        await cluster.await_leaders(TOPIC, [controller] * NEW_LOGS)

        # Stop it in a thread, and watch for its successor meanwhile.
        began = time.perf_counter()
        stopping = asyncio.get_running_loop().run_in_executor(
            None, partial(cluster.members[controller].process.stop, timeout_s=PATIENCE_S)
        )
        while True:
            node = await get_if_there(zk, Controller.path())
            if node is not None and Controller.decode(node[0]).broker_id != controller:
                break
            await asyncio.sleep(POLL_S)
        took_s = time.perf_counter() - began
        await stopping
        return took_s


# ---- what scenes need


def _lay_log(stage: Stage) -> int:
    """Make the broker lead a large log, opened after a clean shutdown; return its end offset."""
    stage.lead({TOPIC: 1})
    stage.broker.process.stop(timeout_s=PATIENCE_S)

    # The broker made the directory; its files are replaced while it is down.
    partition = stage.place.log_directory / f"{TOPIC}-0"
    shutil.rmtree(partition)

    batches = LOG_BYTES // BATCH_BYTES

    # 70 bytes are the batch's header and the record's own fields.
    batch = encode_batch([(_NOW_MS, None, b"x" * (BATCH_BYTES - 70), ())], leader_epoch=0)
    log = write_log(stage.place.directory / "written", itertools.repeat(batch, batches), 2**30)
    log.copy_to(partition)

    # Version 0, one entry: epoch 0 begins at offset 0.
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    stage.start()
    _lead(stage, 1, (LOCAL, LEADER), is_new=False)
    return batches


def _lead(
    stage: Stage, partitions: int, replicas: Sequence[int] = (LOCAL,), *, is_new: bool = True
) -> None:
    """Make the broker lead so many partitions, and publish the metadata."""
    stage.lead({TOPIC: partitions}, replicas, is_new=is_new)
    stage.know({TOPIC: partitions}, LOCAL)


def _fill(stage: Stage, batches: int, logs: int = LOGS) -> None:
    """Make the broker lead partitions of so many batches, each a segment if segments are small."""
    _lead(stage, logs)
    for _ in range(batches):
        stage.produce(TOPIC, logs, _make_batch())


@functools.cache
def _make_batch() -> bytes:
    return encode_batch([(_NOW_MS, b"key", b"x" * 400, ())])


@functools.cache
def _make_bomb() -> bytes:
    return encode_batch([(_NOW_MS, None, bytes(BOMB_BYTES), ())], codec=Codec.GZIP)


@functools.cache
def _make_many_records() -> bytes:
    return encode_batch(((_NOW_MS, None, b"x", ()) for _ in range(MANY_RECORDS)), codec=Codec.GZIP)


def _wanted_topic(partitions: range, offset: int) -> FetchRequestTopic:
    wanted = [
        FetchRequestPartition(partition=p, fetch_offset=offset, partition_max_bytes=2**20)
        for p in partitions
    ]
    return FetchRequestTopic(topic=TOPIC, partitions=wanted)


def _known_topics() -> Topics:
    return {f"{TOPIC}-{nth}": 100 for nth in range(KNOWN // 100)}


def _call_again(stage: Stage, request: FetchRequest, times: int) -> None:
    for _ in range(times):
        stage.call(request)


def _take_responses(connection: socket.socket, number: int) -> None:
    frames = FrameCounter()
    buffer = memoryview(bytearray(2**20))
    while number > 0:
        received = connection.recv_into(buffer)
        if not received:
            raise LoadError("the broker closed the connection")
        number -= frames.count(buffer[:received])


def _alter(stage: Stage, name: str, value: str) -> None:
    """Change a setting of the broker while it runs."""
    resource = ConfigResource.broker(LOCAL)

    async def alter(admin: Admin) -> None:
        if refusal := (await admin.incremental_alter_configs({resource: {name: value}}))[resource]:
            raise LoadError(f"{name} cannot be changed: {refusal}")

    stage.broker.administer(alter)


def _list_segments(stage: Stage, partition: int) -> list[Path]:
    return list((stage.place.log_directory / f"{TOPIC}-{partition}").glob("*.log"))


def _count_cleaned(path: Path) -> int:
    """Count the logs in the cleaner's checkpoint."""
    try:
        return len(decode_offsets(path.read_bytes() if path.exists() else None))
    except CheckpointError:
        return 0
