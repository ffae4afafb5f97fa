"""Records that differ in key and value alone, and go to one partition: many are one step each."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

from clients.producer.encoded_record import EncodedRecord, Header, record_bytes


class AlikeRecords(Sequence[EncodedRecord]):
    """Records of one topic, time and headers, for one partition, or for any and without keys.

    Either all have keys or none has, and all have values.
    """

    def __init__(
        self,
        topic: str,
        partition: int | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> None:
        assert keys is None or partition is not None

        self.topic = topic
        self.partition = partition
        self.keys = keys
        self.values = values
        self.headers = headers
        self.timestamp_ms = timestamp_ms

        sizes = list(map(len, values))
        if keys is not None:
            sizes = [size + len(key) for size, key in zip(sizes, keys, strict=True)]
        self._ends = list(accumulate(sizes, initial=0))
        """Bytes of the keys and values before each record, and before the end."""

        self.overhead_bytes = record_bytes(None, None, headers)
        self.largest_bytes = self.overhead_bytes + max(sizes, default=0)
        """`record_bytes` of the largest record."""

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, number: int) -> EncodedRecord: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[EncodedRecord]: ...

    def __getitem__(self, number: int | slice) -> EncodedRecord | Sequence[EncodedRecord]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]

        key = None if self.keys is None else self.keys[number]
        value = self.values[number]
        size = record_bytes(key, value, self.headers)
        return (
            *(self.topic, self.partition, key, key, value),
            *(self.headers, self.timestamp_ms, size),
        )

    def size_of(self, first: int, end: int) -> int:
        """Return the sum of `record_bytes` of the records from `first` to before `end`."""
        return self._ends[end] - self._ends[first] + (end - first) * self.overhead_bytes

    def end_within(self, first: int, size: int, overhead_bytes: int) -> int:
        """Return the greatest end for which the records from `first` have at most `size` bytes.

        Each has so much overhead.
        """
        # With a constant added, the bytes before each end grow with the end.
        most = size + self._ends[first] + first * overhead_bytes
        ends = range(first + 1, len(self) + 1)
        return first + bisect_right(ends, most, key=lambda e: self._ends[e] + e * overhead_bytes)
