"""Random logs of all formats: cleaning loses no key's newest value, and changes nothing else."""

from __future__ import annotations

import random

import attrs
import pytest

from core_log.config import LogConfig
from protocol.records.batch import Record, encode_batch
from protocol.records.compression import Codec
from tests.compaction.partition import ABORT, COMMIT, T0, Pair, Partition, room_for

SEEDS = range(6)
PLAIN_KEYS = 20


def random_log(rng: random.Random, *, cleaned_on_the_way: bool = False) -> Partition:
    partition = Partition(config=LogConfig(segment_bytes=rng.choice([14, 20_000, 2**30])))
    for segments in range(rng.randint(1, 5)):
        for _ in range(rng.randint(1, 30)):
            append_something(rng, partition)
        partition.roll(T0 + segments)
        if cleaned_on_the_way:
            clean_what_is_decided(partition)
    for producer_id in list(partition._began):
        partition.end_transaction(producer_id, rng.choice([ABORT, COMMIT]))
    partition.roll(T0 + 100)
    return partition


def clean_what_is_decided(partition: Partition) -> None:
    """Clean as far as a broker does: up to the first open transaction's segment."""
    undecided = min(partition._began.values(), default=partition.next_offset)
    bases = [base for base in partition.bases() if base <= undecided]
    if undecided == partition.next_offset:
        partition.clean()
    elif bases[-1] > 0:
        partition.clean(uncleanable=bases[-1])


def append_something(rng: random.Random, partition: Partition) -> None:
    """Append a batch, a few messages, a wrapper, or a step of a transaction."""
    kind = rng.choice(["batch"] * 5 + ["old"] * 2 + ["data", "end"])
    pairs = random_pairs(rng)
    if kind == "batch":
        with_headers = rng.random() < 0.2
        rows = [
            (T0 + rng.randrange(1000), *pair, (("h", b"x"),) if with_headers else ())
            for pair in pairs
        ]
        batch = encode_batch(
            rows,
            base_offset=partition.next_offset,
            codec=rng.choice(list(Codec)),
            timestamp_type=int(rng.random() < 0.2),
        )
        partition.append_bytes(batch, partition.next_offset + len(pairs) - 1)
    elif kind == "old":
        codec = rng.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        magic = rng.randrange(2)
        if codec is Codec.NONE:
            for pair in pairs:
                partition.append_messages(pair, magic=magic)
        else:
            partition.append_messages(*pairs, magic=magic, codec=codec)
    elif kind == "data":
        keyed = [(key or b"", value) for key, value in pairs]
        partition.append_in_transaction(rng.randrange(3), *keyed)
    elif partition._began:
        producer_id = rng.choice(sorted(partition._began))
        partition.end_transaction(producer_id, rng.choice([ABORT, COMMIT]))
    partition.next_offset += rng.choice([0, 0, 0, 1, 5])


def random_pairs(rng: random.Random) -> list[Pair]:
    key_size = rng.choice([1, 2, 30, 60])
    value_size = rng.choice([0, 3, 200])
    return [
        (
            None if rng.random() < 0.02 else b"%0*d" % (key_size, rng.randrange(PLAIN_KEYS)),
            None if rng.random() < 0.1 else rng.randbytes(rng.randint(0, value_size)),
        )
        for _ in range(rng.choice([1, 2, 10, 50, 200]))
    ]


def committed(partition: Partition, end_offset: int) -> list[Record]:
    """The records below `end_offset` that a consumer of committed ones with keys would see."""
    aborted = partition.aborted()
    records_seen = []
    for record, producer_id, is_control in with_producers(partition):
        hidden = is_control or any(
            transaction.producer_id == producer_id
            and transaction.first_offset <= record.offset <= transaction.last_offset
            for transaction in aborted
        )
        if not hidden and record.key is not None and record.offset < end_offset:
            records_seen.append(record)
    return records_seen


def with_producers(partition: Partition) -> list[tuple[Record, int, bool]]:
    by_end = iter(
        sorted((h.last_offset, h.producer_id, h.is_control) for _, _, h in partition.batches())
    )
    last_offset, producer_id, is_control = next(by_end, (-1, -1, False))
    records_seen = []
    for record in partition.records():
        while record.offset > last_offset:
            last_offset, producer_id, is_control = next(by_end)
        records_seen.append((record, producer_id, is_control))
    return records_seen


def newest(records: list[Record]) -> dict[bytes, Record]:
    return {record.key: record for record in records if record.key is not None}


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_reader_finds_by_key_is_the_same_after_cleaning(seed: int) -> None:
    partition = random_log(random.Random(seed))
    before = {record.offset: record for record in partition.records()}
    expected = newest(committed(partition, partition.next_offset))

    partition.clean_all()

    after = partition.records()
    assert newest(committed(partition, partition.next_offset)) == expected
    assert [record for record in after if record != before[record.offset]] == []
    assert [r.offset for r in after] == sorted({r.offset for r in after})
    kept = [r for r, _, is_control in with_producers(partition) if not is_control]
    assert len(kept) == len(expected)


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("seed", SEEDS)
def test_cleaning_again_changes_nothing(seed: int) -> None:
    partition = random_log(random.Random(seed))
    partition.clean_all()
    once = partition.files()
    partition.clean_all()
    partition.checkpoint = 0
    partition.clean_all()
    assert partition.files().keys() <= once.keys()
    assert b"".join(map(partition.segment, partition.bases())) == b"".join(
        content or b"" for name, content in sorted(once.items()) if name.endswith(".log")
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_many_partial_passes_leave_what_one_pass_leaves(seed: int) -> None:
    at_once, by_parts = random_log(random.Random(seed)), random_log(random.Random(seed))
    at_once.clean_all()
    assert by_parts.clean_all(room_for(20)) > 1
    assert newest(committed(by_parts, by_parts.next_offset)) == newest(
        committed(at_once, at_once.next_offset)
    )
    assert by_parts.offsets() == at_once.offsets()


@pytest.mark.parametrize("seed", SEEDS)
def test_cleanings_while_a_log_grows_leave_what_one_at_its_end_leaves(seed: int) -> None:
    at_once = random_log(random.Random(seed))
    as_it_grows = random_log(random.Random(seed), cleaned_on_the_way=True)
    at_once.clean_all()
    as_it_grows.clean_all()
    assert as_it_grows.offsets() == at_once.offsets()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_changes_from_the_first_uncleanable_offset_on(seed: int) -> None:
    rng = random.Random(seed)
    partition = random_log(rng)
    bases = partition.bases()
    if len(bases) < 3:
        partition.append((b"1", b"1"))
        partition.roll()
        bases = partition.bases()
    boundary = bases[-1]
    untouched = partition.segment(boundary)
    expected = newest(committed(partition, partition.next_offset))
    partition.clean(uncleanable=boundary)
    assert partition.segment(boundary) == untouched
    assert newest(committed(partition, partition.next_offset)) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_old_tombstones_go_and_no_other_value_does(seed: int) -> None:
    partition = random_log(random.Random(seed))
    partition.config = attrs.evolve(partition.config, delete_retention_ms=0)
    expected = newest(committed(partition, partition.next_offset))
    partition.clean_all()
    partition.clean_all()
    records_seen = newest(committed(partition, partition.next_offset))
    assert records_seen == {
        key: record for key, record in expected.items() if record.value is not None
    }
