"""The walk must say of every body of records what the plain reader says of it."""

import random

import pytest

from protocol.records.builder import encode_batch
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_run import find_run
from protocol.records.record_walk import walk
from tests.protocol.record_shapes import (
    SHAPES,
    fast_verdict,
    mutate,
    plain_verdict,
    record_starts,
)


def body_of(shape: str, count: int, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    return encode_batch([SHAPES[shape](chance, n) for n in range(count)])[61:]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 200])
def test_sound_records_are_read_as_the_plain_reader_reads_them(shape: str, count: int) -> None:
    body = body_of(shape, count)

    verdict = fast_verdict(body, count, strict=True, require_keys=False)

    assert verdict is not CorruptRecord
    assert verdict == plain_verdict(body, count, strict=True, require_keys=False)


@pytest.mark.parametrize("shape", ["equal", "equal, no key"])
def test_more_equal_records_than_two_byte_deltas_can_count_are_read(shape: str) -> None:
    body = body_of(shape, 8300)

    assert fast_verdict(body, 8300, True, False) == plain_verdict(body, 8300, True, False)


def test_equal_neighbours_are_one_run_up_to_the_next_width_of_varint() -> None:
    run = find_run(body_of("equal, no key", 200), 0, 200)

    assert run is not None
    assert run.records == 64


def test_run_ends_with_the_last_offset_delta_that_is_tabled() -> None:
    body = body_of("equal, no key", 66_000)
    stride = len(body) - len(body_of("equal, no key", 65_999))

    run = find_run(body, len(body) - 1000 * stride, 1000)

    assert run is not None
    assert (run.first_delta, run.records) == (65_000, 536)
    assert find_run(body, len(body) - 100 * stride, 100) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_mutated_records_get_the_verdict_of_the_plain_reader(shape: str) -> None:
    count = 24 if shape == "long" else 90
    chance = random.Random(shape)
    sound = body_of(shape, count)
    starts = record_starts(sound, count)
    refused = 0
    for _ in range(500):
        body = bytearray(sound)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            mutate(body, chance, starts)
        claimed = chance.choice([count, count, count, count - 1, count + 1])
        strict, require_keys = chance.choice([(True, False), (True, True), (False, False)])
        verdict = fast_verdict(bytes(body), claimed, strict, require_keys)
        assert verdict == plain_verdict(bytes(body), claimed, strict, require_keys)
        refused += verdict is CorruptRecord
    assert refused > 100


@pytest.mark.parametrize("shape", ["equal", "equal, no key", "equal, tombstones"])
def test_same_mutation_of_every_record_gets_the_verdict_of_the_plain_reader(shape: str) -> None:
    sound = body_of(shape, 60)
    stride = len(sound) // 60
    for at in {*range(12), *range(max(0, stride - 30), stride)}:
        for byte in (0, 1, 2, 3, 5, 7, 128, 129, 255):
            body = bytearray(sound)
            body[at::stride] = bytes((byte,)) * 60
            verdict = fast_verdict(bytes(body), 60, strict=True, require_keys=False)
            assert verdict == plain_verdict(bytes(body), 60, strict=True, require_keys=False)


@pytest.mark.parametrize("strict", [True, False])
def test_run_after_a_gap_is_refused_in_what_a_client_sends(strict: bool) -> None:
    sound = body_of("equal", 60)
    body = sound[len(sound) // 60 :]

    verdict = fast_verdict(body, 59, strict, require_keys=False)

    assert verdict == plain_verdict(body, 59, strict, require_keys=False)
    assert (verdict is CorruptRecord) == strict


def test_run_that_comes_twice_is_refused() -> None:
    assert fast_verdict(body_of("equal", 60) * 2, 120, False, False) is CorruptRecord


@pytest.mark.parametrize("length", ["01", "ffffffff0f", "feffffff0f", "ffffffffff"])
def test_wild_length_at_the_head_of_a_run_is_refused(length: str) -> None:
    body = bytes.fromhex(length) + body_of("equal", 60)[1:]

    assert fast_verdict(body, 60, strict=False, require_keys=False) is CorruptRecord


def test_greatest_of_negative_timestamp_deltas_is_found() -> None:
    body = bytearray(body_of("falling", 40))
    body[2] = 9

    assert walk(bytes(body), 40, strict=True) == (-1, 39)
    assert walk(bytes(body[: len(body) // 40]), 1, strict=True) == (-5, 0)


def test_two_lies_that_cancel_out_in_length_are_still_found() -> None:
    records = [(0, b"ab", b"cd", [])] * 40
    body = bytearray(encode_batch(records)[61:])
    stride = len(body) // 40
    for n in range(40):
        body[n * stride + 4] = 6
        body[n * stride + 5 : n * stride + 9] = b"abc\x01"

    assert fast_verdict(bytes(body), 40, True, False) == plain_verdict(bytes(body), 40, True, False)


def test_strict_walk_refuses_attributes_which_a_reader_ignores() -> None:
    body = bytearray(body_of("equal", 40))
    body[1] = 1

    assert fast_verdict(bytes(body), 40, strict=True, require_keys=False) is CorruptRecord
    assert fast_verdict(bytes(body), 40, strict=False, require_keys=False) is not CorruptRecord
