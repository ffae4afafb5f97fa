r"""The text files that keep offsets between two runs.

    0                          the version
    2                          the number of lines that follow
    flights 0 1200             topic, partition, offset     (offset checkpoints, one per log dir)
    3 1180                     or: epoch, start offset      (a log's leader-epoch-checkpoint)

Lines end with "\n", white space separates fields. A file without a second line counts as empty, as
in Kafka. Any other error in it is a CheckpointError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.topic_partition import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
VERSION = 0


class CheckpointError(ValueError):
    """A checkpoint file that cannot be read."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint, in the order of topic and partition."""
    return _encode(f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets))


def decode_offsets(text: bytes | None) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. `text` is None without a file. Raises CheckpointError."""
    return {
        TopicPartition(topic, _integer(partition)): _integer(offset)
        for topic, partition, offset in _decode(text, 3)
    }


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Encode a leader-epoch-checkpoint from (epoch, start offset) pairs."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(text: bytes | None) -> list[tuple[int, int]]:
    """Decode a leader-epoch-checkpoint. Raises CheckpointError."""
    return [(_integer(epoch), _integer(start)) for epoch, start in _decode(text, 2)]


def _encode(lines: Iterable[str]) -> bytes:
    # Counted first: the number of lines is written above them.
    entries = list(lines)
    return "\n".join([str(VERSION), str(len(entries)), *entries, ""]).encode()


def _decode(text: bytes | None, fields: int) -> list[list[str]]:
    try:
        lines = (text or b"").decode().splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"not text: {error}") from error
    if len(lines) < 2:
        return []

    if _integer(lines[0]) != VERSION:
        raise CheckpointError(f"unknown version {lines[0]}")

    # Check the announced number of lines, and the fields of each.
    entries = [line.split() for line in lines[2:]]
    if len(entries) != _integer(lines[1]):
        raise CheckpointError(f"{lines[1]} entries announced, {len(entries)} found")
    for line, entry in zip(lines[2:], entries, strict=True):
        if len(entry) != fields:
            raise CheckpointError(f"malformed line {line!r}")
    return entries


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CheckpointError(f"{text!r} is not a number") from error
