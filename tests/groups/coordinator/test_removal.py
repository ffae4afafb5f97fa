"""Expiry and deletion while the coordinator serves: tombstones are written, replayed, retried."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Set

import pytest

from groups.coordinator.coordinator import DELETION_SLICE
from groups.coordinator.events import CommitOffsets
from groups.coordinator.expiry import EXPIRY_SLICE
from groups.coordinator.shard import GroupShard
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.partition_log import TO_THE_END
from groups.runtime.runtime import SWEEP_BACKLOG_BYTES, SWEEP_PAUSE_S, SWEEP_WAITS, in_one_piece
from offsets.config import OffsetsConfig
from offsets.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    OffsetKey,
    Record,
    encode_key,
)
from protocol.errors import ErrorCode
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.groups.coordinator.bench import NOW_MS, OTHER, OWN, Bench, batch_of, error_of, record

MINUTE_S = 60
SHORT = OffsetsConfig(retention_minutes=1)
EMPTY = GroupMetadata(
    protocol_type="consumer",
    generation_id=3,
    protocol=None,
    leader=None,
    state_timestamp_ms=NOW_MS,
    members=(),
)
DELETED = [TopicPartition("t", 0)]


def bench_of(*batches: bytes, replicas: int = 1) -> Bench:
    """A coordinator whose offsets are kept for a minute, and which finds these."""
    bench = Bench(MemoryPartitionLog(), SHORT)
    for data in batches:
        bench.log.append(0, data, NOW_MS)
    bench.lead(0).run()
    bench.log.replicas = replicas
    return bench


def check(bench: Bench) -> None:
    bench.loop.run_until_complete(bench.coordinator.expire_offsets())


def commit(bench: Bench, *records: Record) -> None:
    event = CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, records)
    assert error_of(bench.coordinator.submit(event)) is ErrorCode.NONE


def written(bench: Bench) -> Iterator[tuple[bytes | None, bytes | None]]:
    for _, data in bench.log.partition(0).batches:
        for entry in decode_records(data):
            yield entry.key, entry.value


def tombstones(bench: Bench) -> list[bytes | None]:
    return [key for key, value in written(bench) if value is None]


# ---- expiry


def test_commit_expires_when_its_time_has_come_and_not_before() -> None:
    bench = bench_of(batch_of(record(42)))
    bench.run(MINUTE_S - 1)
    check(bench)
    assert bench.committed() == 42
    bench.run(1)
    check(bench)
    assert bench.committed() is None
    assert tombstones(bench) == [encode_key(record(42)[0])]
    assert Bench(bench.log).lead(0).run().committed() is None


def test_group_that_was_left_is_forgotten_with_its_offsets_in_one_batch() -> None:
    bench = bench_of(batch_of(record(42), (GroupKey(OWN), EMPTY)))
    bench.run(MINUTE_S)
    check(bench)
    assert bench.batches() == [2, 2]
    assert bench.coordinator.describe(OWN).state == "Dead"
    assert tombstones(bench) == [encode_key(record(42)[0]), encode_key(GroupKey(OWN))]


def test_tombstones_are_dated_when_they_are_written() -> None:
    bench = bench_of(batch_of((GroupKey(OWN), EMPTY)))
    bench.run(MINUTE_S)
    check(bench)
    _, data = bench.log.partition(0).batches[-1]
    assert [entry.timestamp_ms for entry in decode_records(data)] == [NOW_MS + MINUTE_S * 1000]


def test_second_check_writes_nothing_more() -> None:
    bench = bench_of(batch_of(record(42), (GroupKey(OWN), EMPTY)))
    bench.run(MINUTE_S)
    check(bench)
    check(bench)
    assert bench.batches() == [2, 2]


def test_expired_offset_is_answered_until_its_tombstone_is_replicated() -> None:
    bench = bench_of(batch_of(record(42)), replicas=3)
    bench.run(MINUTE_S)
    check(bench)
    check(bench)
    assert bench.batches() == [1, 1], "once is enough while it is under way"
    assert bench.committed() == 42
    bench.log.replicate(0)
    assert bench.committed() is None


def test_commit_that_arrives_behind_the_tombstone_stays() -> None:
    bench = bench_of(batch_of(record(42)), replicas=3)
    bench.run(MINUTE_S)
    check(bench)
    bench.commit(43)
    bench.log.replicate(0)
    bench.log.replicate(0)
    assert bench.committed() == 43


def test_commit_under_way_keeps_its_offset_from_expiring() -> None:
    bench = bench_of(batch_of(record(42)), replicas=3)
    bench.run(MINUTE_S)
    bench.commit(43)
    check(bench)
    bench.log.replicate(0)
    assert tombstones(bench) == []
    assert bench.committed() == 43


def test_failed_append_is_tried_with_the_next_check(caplog: pytest.LogCaptureFixture) -> None:
    records = [(OffsetKey(OWN, "t", p), CommittedOffset(1, -1, "", NOW_MS)) for p in range(2000)]
    bench = bench_of(batch_of(*records))
    bench.run(MINUTE_S)
    bench.log.fail(0, ErrorCode.KAFKA_STORAGE_ERROR)
    check(bench)
    assert bench.coordinator.shard(OWN).offsets.count() == len(records)
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1
    bench.log.fail(0, None)
    check(bench)
    assert bench.coordinator.shard(OWN).offsets.count() == 0


def test_partition_led_elsewhere_or_not_loaded_is_left_alone() -> None:
    bench = bench_of(batch_of(record(42)))
    bench.log.append(1, batch_of(record(7, OTHER)), NOW_MS)
    bench.log.fail(1, ErrorCode.KAFKA_STORAGE_ERROR)
    bench.lead(1).run(MINUTE_S)
    bench.coordinator.on_leadership(set(), {0})
    check(bench)
    assert bench.batches(0) == bench.batches(1) == [1]


def test_partition_lost_during_the_check_is_left_alone_from_then_on() -> None:
    records = [(OffsetKey(f"g{n}", "t", 0), record(1)[1]) for n in range(4 * EXPIRY_SLICE)]
    bench = bench_of(batch_of(*records))
    bench.run(MINUTE_S)
    task = bench.loop.create_task(bench.coordinator.expire_offsets())
    bench.loop.run_until_complete(asyncio.sleep(0))
    bench.coordinator.on_leadership(set(), {0})
    bench.loop.run_until_complete(task)
    assert 0 < len(tombstones(bench)) <= EXPIRY_SLICE


@pytest.mark.parametrize(
    "keys",
    [
        [OffsetKey(f"g{n}", "t", 0) for n in range(4 * EXPIRY_SLICE)],
        [OffsetKey("g", "t", n) for n in range(4 * EXPIRY_SLICE)],
    ],
    ids=["many groups", "a large group"],
)
def test_check_gives_way_to_others_after_every_slice(keys: list[OffsetKey]) -> None:
    bench = bench_of(batch_of(*((key, record(1)[1]) for key in keys)))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        check = asyncio.ensure_future(bench.coordinator.expire_offsets())
        while not check.done():
            turns += 1
            await asyncio.sleep(0)

    bench.loop.run_until_complete(count_turns())
    assert turns >= 4
    assert tombstones(bench) == []


def test_tombstones_wait_while_much_else_waits_to_be_written() -> None:
    bench = bench_of(batch_of(record(42)), replicas=3)
    bench.run(MINUTE_S)
    now: Record = (OffsetKey(OWN, "t", 1), CommittedOffset(1, -1, "m" * 30_000, NOW_MS * 2))
    for _ in range(SWEEP_BACKLOG_BYTES // 30_000 + 2):
        bench.coordinator.submit(
            CommitOffsets(bench.coordinator.next_request_id(), OWN, -1, "", None, [now])
        )
    task = bench.loop.create_task(bench.coordinator.expire_offsets())
    # Half of the time for which a sweep waits.
    bench.run(SWEEP_WAITS * SWEEP_PAUSE_S / 2)
    bench.log.replicate(0)
    assert tombstones(bench) == []
    bench.run(1)
    bench.log.replicate(0)
    assert task.done()
    assert tombstones(bench) == [encode_key(record(42)[0])]


def test_what_was_removed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    records = [(OffsetKey(f"g{n}", "t", 0), record(1)[1]) for n in range(3 * EXPIRY_SLICE)]
    bench = bench_of(batch_of(*records))
    bench.run(MINUTE_S)
    caplog.set_level("INFO")
    check(bench)
    assert [r.getMessage() for r in caplog.records] == [
        "__consumer_offsets-0: removing 1500 records, of what has expired"
    ]


# ---- deleted partitions whose offsets could not be dropped


def test_offsets_of_a_deleted_partition_that_could_not_be_dropped_are_with_the_next_check() -> None:
    bench = bench_of(batch_of(record(42)))
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(DELETED)
    check(bench)
    assert bench.committed() == 42
    bench.log.fail(0, None)
    check(bench)
    assert bench.committed() is None
    check(bench)
    assert len(tombstones(bench)) == 1


def test_commit_for_a_topic_created_anew_outlives_the_second_try() -> None:
    bench = bench_of(batch_of(record(42)))
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(DELETED)
    bench.log.fail(0, None)
    commit(bench, record(3))
    check(bench)
    assert bench.committed() == 3
    assert tombstones(bench) == []


def test_commit_under_way_for_a_topic_created_anew_outlives_it_too() -> None:
    bench = bench_of(batch_of(record(42)), replicas=3)
    bench.log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.coordinator.on_deleted(DELETED)
    bench.log.fail(0, None)
    bench.commit(3)
    check(bench)
    for _ in range(2):
        bench.log.replicate(0)
    assert bench.committed() == 3


def test_large_group_of_a_deleted_topic_is_dropped_in_batches_that_the_log_takes() -> None:
    bench = bench_of()
    bench.log.batch_bytes = 20_000
    for first in range(0, 1000, 100):
        commit(bench, *((OffsetKey(OWN, "t", first + p), record(1)[1]) for p in range(100)))
    bench.coordinator.on_deleted([TopicPartition("t", p) for p in range(1000)])
    bench.run(1)
    assert bench.coordinator.shard(OWN).offsets.count() == 0


def test_sweep_that_ends_spares_nothing_for_another_that_goes_on() -> None:
    """t is deleted and created again while the offsets of u, which has many, are deleted."""
    many = [TopicPartition("u", p) for p in range(3 * DELETION_SLICE)]
    records = [(OffsetKey(OWN, *entry), CommittedOffset(1, -1, "", NOW_MS)) for entry in many]
    bench = bench_of(batch_of(record(42)), batch_of(*records))
    bench.coordinator.on_deleted(many)
    bench.coordinator.on_deleted(DELETED)
    commit(bench, record(3))
    bench.run(SWEEP_PAUSE_S / 2)
    assert 1 < bench.coordinator.shard(OWN).offsets.count() < len(many)
    bench.run(1)
    assert bench.coordinator.shard(OWN).offsets.count() == 1
    assert bench.committed() == 3


@pytest.mark.fault("core-R4")
def test_offsets_of_a_topic_deleted_before_the_load_are_deleted_by_records_too() -> None:
    bench = bench_of(batch_of(record(42)))
    asked: list[Set[str]] = []

    async def find_deleted(topics: Set[str]) -> Set[str]:
        asked.append(topics)
        return {"t"}

    bench.coordinator.find_deleted = find_deleted
    bench.coordinator.on_leadership(set(), {0})
    bench.run()
    bench.lead(0).run()

    assert asked == [{"t"}]
    assert bench.committed() is None
    assert tombstones(bench) == [encode_key(record(42)[0])]


# ---- offsets of earlier topics, which are found while the log is loaded


def hide_when_loaded(bench: Bench, *keys: OffsetKey) -> None:
    async def stages(partition: int, shard: GroupShard) -> AsyncGenerator[int, None]:
        yield TO_THE_END
        shard.hide(keys)

    bench.coordinator.runtime.load_stages = stages


@pytest.mark.fault("core-R4")
def test_what_is_left_out_of_a_load_is_deleted_by_records_before_anything_else_is_written() -> None:
    bench = Bench(MemoryPartitionLog())
    bench.log.append(0, batch_of(record(42)), NOW_MS)
    hide_when_loaded(bench, record(42)[0])
    bench.lead(0).run()
    bench.commit(7)
    bench.run()

    assert bench.committed() == 7
    assert tombstones(bench) == [encode_key(record(42)[0])]
    bench.coordinator.on_leadership(set(), {0})
    bench.coordinator.runtime.load_stages = in_one_piece
    bench.lead(0).run()
    assert bench.committed() == 7


def test_commit_that_is_loaded_behind_what_was_left_out_stays() -> None:
    bench = Bench(MemoryPartitionLog())
    for offset in (42, 7):
        bench.log.append(0, batch_of(record(offset)), NOW_MS)

    async def stages(partition: int, shard: GroupShard) -> AsyncGenerator[int, None]:
        yield 1
        assert shard.offsets.count() == 1
        shard.hide([record(42)[0]])
        yield TO_THE_END

    bench.coordinator.runtime.load_stages = stages
    bench.lead(0).run()
    assert bench.committed() == 7
    assert tombstones(bench) == []


def test_offset_found_outdated_stays_if_it_was_committed_again_since() -> None:
    bench = bench_of(batch_of(record(42)))
    (led,) = bench.coordinator.runtime.led_partitions()
    (value,) = [value for _, _, value in led.shard.offsets.values_of(OWN)]
    bench.commit(7)
    slices: list[dict[OffsetKey, bytes | None]] = [{record(42)[0]: value}]
    bench.loop.run_until_complete(bench.coordinator.delete_outdated(led, slices))
    assert bench.committed() == 7
    assert tombstones(bench) == []


def test_offsets_before_the_time_of_their_topic_are_found_in_transactions_too() -> None:
    shard = GroupShard()
    early = CommittedOffset(1, -1, "", NOW_MS - 1)
    late = CommittedOffset(1, -1, "", NOW_MS)
    keys = [OffsetKey(group, topic, 0) for group in ("g", "h") for topic in ("t", "u")]
    shard.replay(shard.encode([(keys[0], early), (keys[1], early), (keys[2], late)]))
    shard.replay(shard.encode([(keys[2], early), (keys[3], early)]), producer_id=9)

    times_ms = {"t": NOW_MS}
    found = [key for part in shard.offsets.slices_before(times_ms, 1) for key, _ in part]
    assert found == [keys[0]]
    assert shard.staged_before(times_ms) == [keys[2]]
    assert shard.topics() == {"t", "u"}

    # The end of the transaction does not bring back what was left out.
    shard.hide(shard.staged_before(times_ms))
    shard.end_transaction(9, is_committed=True)
    assert shard.offsets.fetch("h", "t", 0) is None
    assert shard.offsets.fetch("h", "u", 0) is not None
