"""Encode records, and check all that can be checked without the cluster."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from clients.arguments import to_partition_number
from clients.errors import RecordTooLarge
from clients.named_object import made_of
from clients.producer.alike_records import AlikeRecords
from clients.producer.config import ProducerConfig
from clients.producer.encoded_record import EncodedRecord, Header, record_bytes
from clients.producer.sender import now_ms
from clients.serializers import bytes_encoder, encoder_of
from protocol.bounds import MAX_BATCH_BYTES


class RecordEncoder:
    """The serializers and limits of one producer. Raises SettingError for a wrong serializer."""

    def __init__(self, config: ProducerConfig, *, has_partition_rule: bool) -> None:
        key_serializer = config.key_serializer or config.serializer
        value_serializer = config.value_serializer or config.serializer
        self.encode_key = made_of("key.serializer", encoder_of, key_serializer)
        self._encode_value = made_of("value.serializer", encoder_of, value_serializer)
        self._has_partition_rule = has_partition_rule

        # A record must fit a request, the buffer, and a batch that readers take.
        self._limits = {
            "max.request.size": config.max_request_size,
            "buffer.memory": config.buffer_memory,
            "the size that any reader takes": MAX_BATCH_BYTES,
        }
        self._largest = min(self._limits.values())

    def encode(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
    ) -> EncodedRecord:
        """Encode a record, and check all that can be checked without the cluster.

        Any thread may call this if the serializers allow it. Raises RecordTooLarge, ValueError,
        TypeError, and errors of the serializers.
        """
        encoded_key = self.encode_key(key)
        encoded_value = self._encode_value(value)
        if partition is not None:
            partition = to_partition_number(partition)
        timestamp_ms = now_ms() if timestamp_ms is None else _to_time(timestamp_ms)
        # None is no headers, as for Kafka's client.
        headers = _copy_headers(topic, headers) if headers else ()

        size = record_bytes(encoded_key, encoded_value, headers)
        if size > self._largest:
            self.check_size(topic, size)
        return topic, partition, key, encoded_key, encoded_value, headers, timestamp_ms, size

    def encode_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
    ) -> Sequence[EncodedRecord]:
        """Do the same with several records."""
        if partition is not None:
            partition = to_partition_number(partition)
        timestamp_ms = now_ms() if timestamp_ms is None else _to_time(timestamp_ms)
        # None is no headers, as for Kafka's client.
        headers = _copy_headers(topic, headers) if headers else ()
        encoded_keys = None if keys is None else list(map(self.encode_key, keys))
        encoded_values = list(map(self._encode_value, values))

        # The usual ones have values, and all go to one partition.
        records: Sequence[EncodedRecord]
        has_one_place = partition is not None or (keys is None and not self._has_partition_rule)
        if (
            has_one_place
            and _are_bytes(encoded_values)
            and (encoded_keys is None or _are_bytes(encoded_keys))
        ):
            records = AlikeRecords(
                topic, partition, encoded_keys, encoded_values, headers, timestamp_ms
            )
            largest_bytes = records.largest_bytes
        else:
            nothing = [None] * len(values)
            records = [
                (
                    *(topic, partition, original_key, key, value),
                    *(headers, timestamp_ms, record_bytes(key, value, headers)),
                )
                for original_key, key, value in zip(
                    keys or nothing, encoded_keys or nothing, encoded_values, strict=True
                )
            ]
            largest_bytes = max((record[-1] for record in records), default=0)
        self.check_size(topic, largest_bytes)
        return records

    def check_size(self, where: str, size: int) -> None:
        """Raise RecordTooLarge unless a record, or a batch, of so many bytes can be sent."""
        if size <= self._largest:
            return

        # The tightest limit is the one to name.
        tightest = min(self._limits, key=self._limits.__getitem__)
        raise RecordTooLarge(
            f"a record of {size} bytes for {where} is larger than {tightest}, {self._largest}"
        )


def _to_time(timestamp_ms: int) -> int:
    # A float would fail in the batch, where nobody waits for it (fault strangers-143).
    if not hasattr(timestamp_ms, "__index__"):
        raise TypeError(f"timestamp_ms {timestamp_ms!r} must be an int, of milliseconds")
    if not 0 <= timestamp_ms < 1 << 63:
        raise ValueError(f"timestamp_ms {timestamp_ms} is negative or beyond 64 bits")
    return int(timestamp_ms)


def _are_bytes(contents: Sequence[Any]) -> TypeGuard[Sequence[bytes]]:
    return set(map(type, contents)) <= {bytes}


def _copy_headers(topic: str, headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers as they are now, in bytes: a program may use list and buffers again.

    Raises TypeError or ValueError unless the keys are strings with an UTF-8 form (KIP-82), and the
    values bytes.
    """
    if isinstance(headers, Mapping | str):
        raise TypeError(f"{topic}: headers must be a list of pairs of key and value")
    copied = tuple((key, _header_value(topic, key, value)) for key, value in headers)
    for key, _ in copied:
        if not isinstance(key, str):
            raise TypeError(f"{topic}: header key {key!r} must be a str; Kafka stores it in UTF-8")
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{topic}: header key {key!r} has no UTF-8 form, in which Kafka stores it; "
                "put bytes that are no text into the header's value"
            ) from error
    # Of another thread they are encoded later (fault strangers-161, was: headers).
    return copied


def _header_value(topic: str, key: object, value: Any) -> bytes | None:
    try:
        return bytes_encoder(value)
    except TypeError as error:
        raise TypeError(f"{topic}: the value of header {key!r}: {error}") from error
