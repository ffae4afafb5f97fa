"""Failures of a store of committed offsets."""

from collections.abc import Iterable, Mapping

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KgroupError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


class CommitFailed(KgroupError):
    """Some partitions were not committed; those not in `errors` were.

    If a right is missing, the text has the one to ask for.
    """

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode], detail: str = "") -> None:
        named = ", ".join(f"{p}: {code.name}" for p, code in sorted(errors.items()))
        text = f"{named} ({detail})" if detail else named
        rights = missing_rights(ApiKey.OFFSET_COMMIT, errors.values())
        super().__init__("; ask for ".join([text, *rights]))
        self.errors = dict(errors)
        self.detail = detail

    @property
    def retriable(self) -> bool:
        """True if trying again can help at least one partition."""
        return any(code.retriable for code in self.errors.values())


class OffsetFetchFailed(KgroupError):
    """The offsets of some partitions could not be read; `offsets` has those of the others.

    `rights` are those to ask for, in words.
    """

    def __init__(
        self,
        errors: Mapping[TopicPartition, str],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        rights: Iterable[str] = (),
    ) -> None:
        named = ", ".join(f"{p}: {reason}" for p, reason in sorted(errors.items()))
        super().__init__("; ask for ".join([named, *rights]))
        self.errors = dict(errors)
        self.offsets = dict(offsets)


def missing_rights(api_key: ApiKey, codes: Iterable[ErrorCode]) -> list[str]:
    """Return in words the rights that these errors are about."""
    # Commands that nobody refuses start without the table.
    from protocol.needs import missing_right

    return [right for code in sorted(set(codes)) if (right := missing_right(api_key, code))]
