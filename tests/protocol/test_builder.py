import pytest

from protocol.bounds import MAX_ARRAY_BYTES
from protocol.records.batch import BatchBuilder, Codec, decode_batch, read_header


def test_record_that_would_not_fit_is_left_out() -> None:
    builder = BatchBuilder(Codec.NONE, 1000)
    added = 0
    while builder.try_append(added, b"key", b"v" * 100):
        added += 1

    batch = builder.build()

    assert builder.count == added == read_header(batch).count
    assert builder.size_estimate == len(batch) <= 1000 < len(batch) + 112
    assert [record.timestamp_ms for record in decode_batch(batch)] == list(range(added))


def test_record_that_fits_exactly_is_taken() -> None:
    probe = BatchBuilder(Codec.NONE, 10**6)
    for n in range(5):
        probe.try_append(n, None, b"v" * 100)

    exact = BatchBuilder(Codec.NONE, probe.size_estimate)

    assert [exact.try_append(n, None, b"v" * 100) for n in range(6)] == [True] * 5 + [False]


def test_first_record_fits_whatever_its_size() -> None:
    builder = BatchBuilder(Codec.NONE, 0)

    assert builder.try_append(1, None, b"v" * 100_000)
    assert not builder.try_append(2, None, b"")
    assert len(decode_batch(builder.build())) == 1


def test_record_that_cannot_be_encoded_leaves_the_builder_as_it_was() -> None:
    builder = BatchBuilder()
    builder.try_append(1, b"k", b"v")
    before = builder.build()
    for headers in ([("name", 5)], [(5, b"value")]):
        try:
            builder.try_append(2, b"k", b"v", headers)
        except (AttributeError, TypeError):
            assert builder.build() == before
        else:
            raise AssertionError("that record was taken")


def test_timestamps_of_the_header_are_the_first_and_the_greatest() -> None:
    builder = BatchBuilder()
    for timestamp in (500, 900, 100):
        builder.try_append(timestamp, None, None)

    header = read_header(builder.build())

    assert (header.base_timestamp, header.max_timestamp) == (500, 900)


def test_size_estimate_of_a_compressed_batch_is_that_before_compression() -> None:
    builder = BatchBuilder(Codec.GZIP, 10_000)
    while builder.try_append(0, b"same", b"again" * 20):
        pass

    assert len(builder.build()) < 1_000 < 9_800 < builder.size_estimate <= 10_000


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 8191, 8192, 8193, 9000])
@pytest.mark.parametrize("value_bytes", [0, 24, 70, None])
@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("max_bytes", [MAX_ARRAY_BYTES, 5_000, 100])
def test_many_records_are_written_as_each_alone(
    count: int, value_bytes: int | None, has_keys: bool, max_bytes: int
) -> None:
    keys = [number.to_bytes(4) for number in range(count)] if has_keys else None
    # None: of various lengths.
    values = [
        bytes([number % 256]) * (number % 99 if value_bytes is None else value_bytes)
        for number in range(count)
    ]
    for before in 0, 1, 70:
        one_by_one, many = BatchBuilder(max_bytes=max_bytes), BatchBuilder(max_bytes=max_bytes)
        for builder in one_by_one, many:
            for number in range(before):
                builder.try_append(5 + number, None, b"before")

        headers = [("name", b"content")] if before else []
        for key, value in zip(keys or [None] * count, values, strict=True):
            if not one_by_one.try_append(7, key, value, headers):
                break
        added = many.append_many(7, keys, values, headers)

        assert many.count - min(before, many.count) <= added <= count
        assert many.build() == one_by_one.build()
        assert many.size_estimate == one_by_one.size_estimate
        assert many.count == one_by_one.count
