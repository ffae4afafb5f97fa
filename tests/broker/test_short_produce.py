"""Produce by the short way and by the general one: the same responses, bytes and state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from broker.handlers import produce
from broker.handlers.short_produce import MAX_HEADS, MAX_PLACES, ShortProduce
from broker.network.authorization import Sender, topic
from broker.network.dispatch import NO_RESPONSE, Close, Dispatched, Dispatcher, Refused
from broker.network.purgatory import Wait
from broker.network.request_context import Origin
from core_log.config import LogConfig
from core_log.memory_directory import MemoryDirectory
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.header import encode_request, encode_response
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from tests.broker.broken_frames import broken
from tests.broker.reads import serve_read
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, follower_at
from tests.broker.transactions import in_transaction
from tests.stage.authorizer import REFUSING, allowing

ORIGIN = Origin("PLAINTEXT", "127.0.0.1:1")

CONFIGS = {
    "Kafka's defaults": LogConfig(),
    "small batches": LogConfig(max_message_bytes=200),
    "compressed by the broker": LogConfig(compression_type="gzip"),
    "compacted": LogConfig(cleanup_policy=("compact",)),
    "times of the broker": LogConfig(message_timestamp_type="LogAppendTime"),
    "times are limited": LogConfig(message_timestamp_difference_max_ms=1000),
    "two in sync": LogConfig(min_insync_replicas=2),
    "flushed each time": LogConfig(flush_messages=1),
    "short segments": LogConfig(segment_bytes=2000, index_interval_bytes=100),
}

PRODUCE = b"\0\0"
"""What every frame begins with, broken or not: the key of the API."""

NEVER_SHORT = {"two in sync", "flushed each time"}
"""Everything is refused there, or waited for."""


@attrs.define(eq=False)
class Twin:
    """A broker's replicas, and the dispatcher in front of them."""

    replicas: Replicas
    dispatcher: Dispatcher
    short: int = 0
    """Requests that the short way has answered."""
    at_once: int = 0
    """Requests that were answered together."""

    @classmethod
    def of(cls, config: LogConfig, *, short: bool) -> Twin:
        # The files of indexes are compared too, with the room that they reserve.
        replicas = Replicas(config=attrs.evolve(config, segment_index_bytes=64 * 1024))
        replicas.lead("alone", 2)
        replicas.lead("other")
        replicas.lead("followed", isr=(0, 1), replicas=(0, 1))
        replicas.lead("elsewhere", leader=1, isr=(1,), replicas=(0, 1))
        handle = partial(produce.handle, replicas.manager, replicas.cache, replicas.deferred)
        way = ShortProduce(replicas.manager, replicas.cache)
        return cls(
            replicas,
            Dispatcher(
                {ApiKey.PRODUCE: handle},
                lambda: NOW_MS,
                lambda: NOW_MS,
                short_ways={ApiKey.PRODUCE: way} if short else {},
                run_ways={ApiKey.PRODUCE: way.serve_run} if short else {},
            ),
        )

    async def serve_read(self, frames: Sequence[bytes]) -> list[list[Any]]:
        """Return what becomes of the requests of one read, as far as possible at once."""
        outcomes, at_once = await serve_read(self.dispatcher, ORIGIN, frames, self.serve)
        self.at_once += at_once
        return outcomes

    async def serve(self, frame: bytes) -> list[Any]:
        """Return what becomes of a request: of each wait what it waits for, and the response."""
        try:
            dispatched = self.dispatcher.dispatch(memoryview(frame), ORIGIN)
        except Refused as error:
            return [str(error)]

        steps: list[Any] = []
        while isinstance(wait := dispatched.outcome, Wait):
            steps.append((wait.offsets, wait.timeout_ms))
            self.replicas.flush()
            # What a thread has done is seen in the next turns.
            for _ in range(4):
                await asyncio.sleep(0)
            ended = wait.try_complete(False) or wait.try_complete(True)
            assert isinstance(ended, Dispatched)
            dispatched = ended

        self.short += isinstance(dispatched.outcome, bytes)
        return [*steps, written(dispatched), dispatched.close]

    def state(self) -> dict[str, Any]:
        """Return all bytes on disk, and what the partitions know."""
        self.replicas.check()
        known = {
            str(tp): (
                partition.log.log_end_offset,
                partition.log.durable_end_offset,
                partition.high_watermark,
            )
            for tp, partition in self.replicas.manager.partitions.items()
        }
        return known | files_of(self.replicas.directory)

    def records(self) -> dict[str, Any]:
        """Return the bytes of all logs, wherever segments end, and what the partitions know."""
        self.replicas.check()
        known: dict[str, Any] = {}
        for tp, partition in self.replicas.manager.partitions.items():
            log = partition.log
            data = b"".join(segment.log.read(0, segment.size) for segment in log.segments)
            ends = (log.log_end_offset, log.durable_end_offset, partition.high_watermark)
            epochs = log.leader_epochs.entries
            known[str(tp)] = (data, ends, epochs, max(s.latest.timestamp for s in log.segments))
        return known


def written(dispatched: Dispatched) -> Any:
    """Return the frame of a response, or what takes its place."""
    header, outcome = dispatched.header, dispatched.outcome
    if outcome is NO_RESPONSE or isinstance(outcome, (bytes, Close)):
        return outcome
    frame, _ = encode_response(header.api_key, header.api_version, header.correlation_id, outcome)
    return bytes(frame)


def files_of(directory: MemoryDirectory) -> dict[str, bytes]:
    files = {}
    for name in directory.files():
        file = directory.open_existing(name)
        files[f"{directory.path}/{name}"] = bytes(file.read(0, file.size))
    for name in directory.children():
        files |= files_of(directory.child(name))
    return files


def made(chance: random.Random, version: int) -> bytes:
    """Make a request: mostly a usual one, often almost one, sometimes nearly anything."""
    records: bytes | None = random_batch(chance)
    if chance.random() < 0.1:
        records = chance.choice([None, b"", b"x" * 80, records + records, records[:-1]])

    def topic() -> str:
        usual = ["alone", "alone", "alone", "other", "followed", "elsewhere"]
        return chance.choice([*usual, "unknown", "__consumer_offsets", "Tür"])

    def some(most: int) -> range:
        return range(1 if chance.random() < 0.85 else chance.randrange(most))

    request = ProduceRequest(
        transactional_id=transaction_of(chance) if version >= 3 else None,
        acks=chance.choice([1, 1, 1, -1, -1, 0, 2]),
        timeout_ms=chance.choice([0, 1000]),
        topic_data=[
            ProduceRequestTopic(
                name=topic(),
                partition_data=[
                    ProduceRequestPartition(index=chance.choice([0, 0, 1, 7, -1]), records=records)
                    for _ in some(3)
                ],
            )
            for _ in some(3)
        ],
    )
    client_id = chance.choice([None, "", "client", "kläger"])
    frame = encode_request(ApiKey.PRODUCE, version, chance.getrandbits(31), client_id, request)
    return bytes(frame)[4:]


def transaction_of(chance: random.Random) -> str | None:
    return chance.choice([None, None, None, "t", "t", "", "t" * 200])


def random_batch(chance: random.Random) -> bytes:
    values = [
        chance.randbytes(chance.choice([0, 1, 20, 100])) for _ in range(chance.choice([1, 5]))
    ]
    if chance.random() < 0.03:
        values = [bytes(chance.choice([20_000, 70_000]))]
    records = [
        (chance.choice([1, NOW_MS]), chance.choice([None, b"k", b"k"]), value, ())
        for value in values
    ]
    producer = {"producer_id": chance.choice([7, 8]), "producer_epoch": 0}
    numbers = {**producer, "base_sequence": chance.choice([0, 1, 5])}
    return encode_batch(
        records,
        codec=chance.choice([Codec.NONE] * 6 + [Codec.GZIP, Codec.LZ4]),
        flags=chance.choice([0] * 6 + [TRANSACTIONAL]),
        **(numbers if chance.random() < 0.3 else {}),
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_both_ways_give_the_same_responses_bytes_and_state(name: str) -> None:
    asyncio.run(compare_ways(name))


async def compare_ways(name: str) -> None:
    chance = random.Random(name)
    short, general = (Twin.of(CONFIGS[name], short=is_short) for is_short in (True, False))

    for number in range(1000):
        frame = made(chance, version=chance.choice([9, 9, 8, 7, 7, 6, 5, 4, 3, 3, 2, 0]))
        match chance.randrange(4):
            case 0:
                frame = broken(chance, frame, PRODUCE)
            case 1 | 2:
                frame = bytes(
                    usual_frame(
                        index=chance.choice([0, 1]),
                        acks=chance.choice([1, -1]),
                        version=chance.choice([7, 9]),
                        records=chance.choice([None, random_batch(chance)]),
                        transaction=transaction_of(chance),
                    )
                )
                # Its beginning is known by now, and the rest may be anything.
                if chance.random() < 0.1:
                    frame = frame[:-1] + bytes([chance.randrange(256)])

        # Each request in a turn of its own, as the loop would serve it.
        await asyncio.sleep(0)
        outcomes = [await twin.serve(frame) for twin in (short, general)]
        assert outcomes[0] == outcomes[1], f"request {number}: {frame!r}"
        if number % 50 == 0:
            # A follower comes along, so that requests with acks=-1 may end at once.
            for twin in (short, general):
                (followed,) = (
                    tp for tp in twin.replicas.manager.partitions if tp.topic == "followed"
                )
                end = twin.replicas.manager.partition(followed).log.log_end_offset
                follower_at(twin.replicas, followed, end)
            assert await have_one_state(short, general), f"after request {number}"

    assert await have_one_state(short, general)
    # Otherwise nothing was compared.
    assert name in NEVER_SHORT or short.short > 200


def usual_frame(
    topic: str = "alone",
    index: int = 0,
    acks: int = 1,
    version: int = 7,
    records: bytes | None = None,
    transaction: str | None = None,
) -> memoryview:
    records = records or batch(b"v", key=b"k", timestamp_ms=NOW_MS)
    partitions = [ProduceRequestPartition(index=index, records=records)]
    topics = [ProduceRequestTopic(name=topic, partition_data=partitions)]
    request = ProduceRequest(
        transactional_id=transaction, acks=acks, timeout_ms=1000, topic_data=topics
    )
    return memoryview(bytes(encode_request(ApiKey.PRODUCE, version, 1, "c", request)))[4:]


@pytest.mark.parametrize("name", CONFIGS)
def test_requests_of_one_read_give_the_same_responses_and_records(name: str) -> None:
    asyncio.run(compare_reads(name))


async def compare_reads(name: str) -> None:
    chance = random.Random(name)
    short, general = (Twin.of(CONFIGS[name], short=is_short) for is_short in (True, False))

    for number in range(120):
        topic, version = chance.choice(["alone", "alone", "followed"]), chance.choice([3, 7, 9])
        acks, index = chance.choice([1, -1]), chance.choice([0, 0, 1])
        frames = []
        for _ in range(chance.randrange(2, 7)):
            frame = bytes(usual_frame(topic, index, acks, version, random_batch(chance)))
            match chance.randrange(12):
                case 0:
                    frame = broken(chance, frame, PRODUCE)
                case 1:
                    frame = made(chance, version)
                case 2:
                    frame = bytes(usual_frame(topic, 1 - index, acks, version))
            frames.append(frame)

        await asyncio.sleep(0)
        at_once = await short.serve_read(frames)
        one_by_one = [await general.serve(frame) for frame in frames]
        # A segment may be full, and wait for a flush, some batches sooner.
        responses = [[steps[-2:] for steps in steps_of] for steps_of in (at_once, one_by_one)]
        assert responses[0] == responses[1], f"read {number}: {frames!r}"
        if number % 20 == 0:
            assert short.records() == general.records(), f"after read {number}"

    assert short.records() == general.records()
    assert name in NEVER_SHORT or short.at_once > 5


def test_requests_that_begin_alike_are_appended_at_once() -> None:
    twin = Twin.of(LogConfig(), short=True)
    frames = [bytes(usual_frame(version=9)) for _ in range(5)]

    async def serve() -> None:
        # How they begin is not known before the first one.
        await twin.serve_read(frames[:1])
        await twin.serve_read(frames)

    asyncio.run(serve())
    assert twin.at_once == 5
    assert twin.replicas.manager.high_watermark(TopicPartition("alone", 0)) == 6


def test_a_full_disk_takes_none_of_the_requests_of_one_read() -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    frames = [bytes(usual_frame()) for _ in range(5)]

    async def serve() -> list[list[list[Any]]]:
        outcomes = []
        for twin in twins:
            await twin.serve(frames[0])
            twin.replicas.directory.disk.free_bytes = 0
            outcomes.append(await twin.serve_read(frames))
        return outcomes

    with_run, without = asyncio.run(serve())
    assert with_run == without
    assert twins[0].records() == twins[1].records()
    assert twins[0].at_once == 0


async def have_one_state(one: Twin, other: Twin) -> bool:
    """Return whether both have the same bytes on disk, and know the same.

    To read all of it takes long: each in a turn of the loop.
    """
    state = one.state()
    await asyncio.sleep(0)
    return state == other.state()


def frame_of_several(*records: bytes, acks: int = 1, version: int = 7) -> memoryview:
    """One batch each for partition 0 and 1 of a topic, and for the only one of another."""
    first, second, third = records
    topics = [
        ProduceRequestTopic(
            name="alone",
            partition_data=[
                ProduceRequestPartition(index=0, records=first),
                ProduceRequestPartition(index=1, records=second),
            ],
        ),
        ProduceRequestTopic(
            name="other", partition_data=[ProduceRequestPartition(index=0, records=third)]
        ),
    ]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return memoryview(bytes(encode_request(ApiKey.PRODUCE, version, 1, "c", request)))[4:]


@pytest.mark.parametrize("version", [3, 5, 8, 9])
def test_a_request_for_several_partitions_takes_the_short_way(version: int) -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    batches = [batch(value, timestamp_ms=NOW_MS) for value in (b"a", b"b", b"c")]
    frame = frame_of_several(*batches, version=version)
    outcomes = [asyncio.run(twin.serve(bytes(frame))) for twin in twins]
    assert outcomes[0] == outcomes[1]
    assert twins[0].state() == twins[1].state()
    assert twins[0].short == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_is_refused_behind_others_leaves_these_appended_once(acks: int) -> None:
    usual = batch(b"v", timestamp_ms=NOW_MS)
    broken_batch = usual[:-1] + bytes([usual[-1] ^ 1])
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    for twin in twins:
        asyncio.run(twin.serve(bytes(frame_of_several(usual, broken_batch, usual, acks=acks))))
    assert twins[0].state() == twins[1].state()
    ends = {str(tp): p.log.log_end_offset for tp, p in twins[0].replicas.manager.partitions.items()}
    assert ends["alone-0"] == ends["other-0"] == 1
    assert ends["alone-1"] == 0


@pytest.mark.parametrize("version", range(3, 10))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_usual_request_takes_the_short_way(acks: int, version: int) -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    frame = bytes(usual_frame(acks=acks, version=version))
    # The second one's beginning is remembered.
    for number in (1, 2):
        outcomes = [asyncio.run(twin.serve(frame)) for twin in twins]
        assert outcomes[0] == outcomes[1]
        assert twins[0].short == number


@pytest.mark.parametrize("version", range(3, 10))
def test_a_request_of_a_transaction_takes_the_short_way(version: int) -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    for number in range(3):
        records = in_transaction(b"v", sequence=number)
        frame = bytes(usual_frame(records=records, version=version, transaction="t"))
        outcomes = [asyncio.run(twin.serve(frame)) for twin in twins]
        assert outcomes[0] == outcomes[1]
        assert twins[0].short == number + 1


@pytest.mark.parametrize("version", [3, 9])
def test_a_transactional_batch_without_an_id_takes_the_general_way(version: int) -> None:
    twin = Twin.of(LogConfig(), short=True)
    asyncio.run(twin.serve(bytes(usual_frame(version=version))))
    asyncio.run(twin.serve(bytes(usual_frame(records=in_transaction(b"v"), version=version))))
    assert twin.short == 1
    assert twin.replicas.manager.log(TopicPartition("alone", 0)).log_end_offset == 1


def test_who_may_write_in_a_transaction_is_asked_the_general_way() -> None:
    twin = Twin.of(LogConfig(), short=True)
    twin.dispatcher.authorizer = allowing((Operation.WRITE, topic("alone")))
    frame = bytes(usual_frame(records=in_transaction(b"v"), transaction="t"))
    for _ in range(2):
        asyncio.run(twin.serve(frame))
    assert twin.short == 0
    assert twin.replicas.manager.log(TopicPartition("alone", 0)).log_end_offset == 0


def test_a_topic_with_a_long_name_takes_the_short_way_too() -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    name = "n" * 200
    for twin in twins:
        twin.replicas.lead(name)
    # Its length takes two bytes.
    frame = bytes(usual_frame(name, version=9))
    outcomes = [asyncio.run(twin.serve(frame)) for twin in twins for _ in range(2)]
    assert outcomes[:2] == outcomes[2:]
    assert twins[0].short == 2


def test_numbers_in_more_bytes_than_they_need_are_read_all_the_same() -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    frame = bytes(usual_frame(version=9))
    # The number of topics, one more than it is: two bytes for one.
    topics_at = frame.index(b"\2\6alone")
    frame = frame[:topics_at] + b"\x82\0" + frame[topics_at + 1 :]
    outcomes = [asyncio.run(twin.serve(frame)) for twin in twins for _ in range(2)]
    assert outcomes[:2] == outcomes[2:]
    assert twins[0].state() == twins[1].state()


def test_a_bug_in_the_short_way_ends_the_connection_and_the_handler_is_not_called() -> None:
    def fail(frame: memoryview, now_ms: int, sender: Sender | None) -> None:
        raise RuntimeError("planted")

    twin = Twin.of(LogConfig(), short=False)
    twin.dispatcher.short_ways = {ApiKey.PRODUCE: fail}
    dispatched = twin.dispatcher.dispatch(usual_frame(), ORIGIN)
    assert dispatched.close
    (topic,) = dispatched.outcome.responses  # type: ignore[union-attr]
    assert topic.partition_responses[0].error_code == -1
    assert not any(p.log.log_end_offset for p in twin.replicas.manager.partitions.values())


def test_a_client_who_may_write_takes_the_short_way_with_an_authorizer_too() -> None:
    twin = Twin.of(LogConfig(), short=True)
    twin.dispatcher.authorizer = allowing((Operation.WRITE, topic("alone")))
    asyncio.run(twin.serve(bytes(usual_frame())))
    assert twin.short == 1


@pytest.mark.parametrize(("name", "at_once"), [("alone", 2), ("other", 0)])
def test_requests_that_come_together_are_served_at_once_where_they_are_allowed(
    name: str, at_once: int
) -> None:
    twin = Twin.of(LogConfig(), short=True)
    twin.dispatcher.authorizer = allowing((Operation.WRITE, topic(name)))
    # The first one is read in full, and the others begin alike.
    asyncio.run(twin.serve_read([bytes(usual_frame())] * 3))
    assert twin.at_once == at_once


def test_one_refused_topic_of_several_is_refused_the_general_way() -> None:
    twins = [Twin.of(LogConfig(), short=is_short) for is_short in (True, False)]
    frame = frame_of_several(*[batch(value, timestamp_ms=NOW_MS) for value in (b"a", b"b", b"c")])
    for twin in twins:
        twin.dispatcher.authorizer = allowing((Operation.WRITE, topic("alone")))
    outcomes = [asyncio.run(twin.serve(bytes(frame))) for twin in twins]
    assert outcomes[0] == outcomes[1]
    assert twins[0].state() == twins[1].state()
    assert twins[0].short == 0


def test_a_client_who_may_not_is_told_so_the_general_way() -> None:
    twin = Twin.of(LogConfig(), short=True)
    twin.dispatcher.authorizer = REFUSING
    asyncio.run(twin.serve(bytes(usual_frame())))
    assert twin.short == 0
    assert not any(p.log.log_end_offset for p in twin.replicas.manager.partitions.values())


def test_a_topic_that_is_deleted_is_unknown_though_its_place_is_remembered() -> None:
    replicas = Replicas().lead("alone")
    way = ShortProduce(replicas.manager, replicas.cache)
    assert isinstance(way(usual_frame(), NOW_MS, None), bytes)
    (tp,) = replicas.manager.partitions
    replicas.manager.remove(tp)
    assert way(usual_frame(), NOW_MS, None) is None


def test_places_that_are_remembered_have_a_bound() -> None:
    replicas = Replicas().lead("alone")
    way = ShortProduce(replicas.manager, replicas.cache)
    (tp,) = replicas.manager.partitions
    way._places = {number.to_bytes(4): tp for number in range(MAX_PLACES)}
    assert isinstance(way(usual_frame(), NOW_MS, None), bytes)
    assert len(way._places) == 1


def test_beginnings_that_are_remembered_have_a_bound() -> None:
    replicas = Replicas().lead("alone")
    way = ShortProduce(replicas.manager, replicas.cache)
    way(usual_frame(), NOW_MS, None)
    (head,) = way._heads.values()
    way._heads = {(7, number.to_bytes(4)): head for number in range(MAX_HEADS)}
    assert isinstance(way(usual_frame(), NOW_MS, None), bytes)
    assert len(way._heads) == 1
