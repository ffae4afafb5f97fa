"""What becomes of a log when its disk, or what is on it, fails whoever works with it.

After an error of the disk nobody knows what came of the bytes: the log takes no more writes until
it was recovered at the next start, and what it holds can still be read. A lack of room is another
matter where the write was taken back whole: the log is *full*, and takes writes again when there is
room (`LogDir.resume_writes`). Meanwhile old segments may go, which is what makes room. Bytes that
are no batch, where there should be one, are told to whoever comes to them and end nothing.
"""

from __future__ import annotations

import logging
from types import TracebackType

import attrs

from core_log.storage import DISK_FULL, INNOCENT, OUT_OF_RESOURCES, SyncFailed
from protocol.errors import ApiError, ErrorCode
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Guard:
    """Of one log. A block under it raises ApiError: KAFKA_STORAGE_ERROR for an OSError, after which
    `failure` says why no more is written, and CORRUPT_MESSAGE for a CorruptRecord.

    `failure` is final; `lack_of_room` ends with `clear_lack_of_room`.
    """

    topic_partition: TopicPartition
    failure: str | None = None
    lack_of_room: str | None = None
    suspects_disk: bool = False
    reading: ReadingGuard = attrs.field(init=False)
    _unreadable_told: str = ""

    @reading.default
    def _of_this_log(self) -> ReadingGuard:
        return ReadingGuard(self)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise self.fail(error) from error
        if isinstance(error, CorruptRecord):
            raise self._unreadable(error) from error

    @property
    def refusal(self) -> str | None:
        """Why the log takes no writes now; None while it does."""
        return self.failure or self.lack_of_room

    @property
    def is_full(self) -> bool:
        """Whether the log takes no writes for a lack of room, and for nothing else."""
        return self.lack_of_room is not None and self.failure is None

    def check(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR if the log takes no writes."""
        if self.refusal is not None:
            raise self._refused()

    def check_failure(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR if the log takes no writes any more; a lack of room
        does not count."""
        if self.failure is not None:
            raise self._refused()

    def refuse(self, error: OSError) -> ApiError:
        """Take no writes because of `error`, before which nothing was changed, or all of it was
        taken back; the exception to answer with.

        Whoever looks after the directory says so in the log, once for all logs that are full.
        """
        if error.errno not in DISK_FULL or isinstance(error, SyncFailed):
            return self.fail(error)
        self.lack_of_room = self.lack_of_room or str(error)
        return self._refused()

    def clear_lack_of_room(self) -> None:
        """Take writes again, unless more is wrong than a lack of room."""
        self.lack_of_room = None

    def fail(self, error: OSError | str) -> ApiError:
        """Take no more writes because of `error`; the exception to answer with."""
        if self.failure is None:
            logger.error("%s takes no more writes: %s", self.topic_partition, error)
            self.failure = str(error)
            self.suspects_disk = isinstance(error, OSError) and error.errno not in INNOCENT
        return self._refused()

    def _refused(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {self.refusal}")

    def _unreadable(self, error: CorruptRecord) -> ApiError:
        """People are told once, readers each time."""
        if str(error) != self._unreadable_told:
            self._unreadable_told = str(error)
            logger.error("%s cannot be read: %s", self.topic_partition, error)
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}")


@attrs.define(eq=False)
class ReadingGuard:
    """Of one log, for blocks that only read: a lack of descriptors or memory, which passes, is told
    to whoever reads and ends nothing; all else is as under `guard`."""

    guard: Guard

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            why = f"{self.guard.topic_partition}: {error}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        self.guard.__exit__(kind, error, trace)
