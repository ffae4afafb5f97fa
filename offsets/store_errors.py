"""Failures of a store of committed offsets."""

from collections.abc import Mapping

from protocol.errors import ErrorCode, KgroupError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


class CommitFailed(KgroupError):
    """Some partitions were not committed; those not in `errors` were."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode], detail: str = "") -> None:
        named = ", ".join(f"{p}: {code.name}" for p, code in sorted(errors.items()))
        super().__init__(f"{named} ({detail})" if detail else named)
        self.errors = dict(errors)
        self.detail = detail

    @property
    def retriable(self) -> bool:
        """True if trying again can help at least one partition."""
        return any(code.retriable for code in self.errors.values())


class OffsetFetchFailed(KgroupError):
    """The offsets of some partitions could not be read; `offsets` has those of the others."""

    def __init__(
        self,
        errors: Mapping[TopicPartition, str],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        super().__init__(", ".join(f"{p}: {reason}" for p, reason in sorted(errors.items())))
        self.errors = dict(errors)
        self.offsets = dict(offsets)
