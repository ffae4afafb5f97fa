"""The state of a log whose disk, or whose bytes on it, fail.

After an error of the disk nobody knows what became of the bytes. The log takes no more writes until
it was recovered at the next start, and can still be read. A lack of room is different if the write
was taken back whole: the log is *full*, and takes writes again when there is room
(`LogDir.resume_writes`). Meanwhile old segments may go, which makes room. Bytes that should be a
batch and are none are reported to whoever reads them, and end nothing.
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
    """The guard of one log. A block under it raises ApiError instead of what the disk raises.

    An OSError becomes KAFKA_STORAGE_ERROR and sets `failure`, which says why nothing more is
    written. A CorruptRecord becomes CORRUPT_MESSAGE. `failure` is final; `lack_of_room` ends with
    `clear_lack_of_room`.
    """

    topic_partition: TopicPartition
    failure: str | None = None
    lack_of_room: str | None = None
    suspects_disk: bool = False
    reading: ReadingGuard = attrs.field(init=False)
    # The last one in the log. Readers come back to it again and again.
    _logged_corruption: str = ""

    @reading.default
    def _reading_guard(self) -> ReadingGuard:
        return ReadingGuard(self)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Other exceptions pass through as they are.
        if isinstance(error, OSError):
            raise self.fail(error) from error
        if isinstance(error, CorruptRecord):
            raise self._corruption_error(error) from error

    @property
    def refusal(self) -> str | None:
        """Why the log takes no writes now; None while it does."""
        return self.failure or self.lack_of_room

    @property
    def is_full(self) -> bool:
        """True if the log takes no writes only for a lack of room."""
        return self.lack_of_room is not None and self.failure is None

    def check(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR if the log takes no writes."""
        if self.failure is not None or self.lack_of_room is not None:
            raise self._refusal_error()

    def check_failure(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR if the log failed. A lack of room does not count."""
        if self.failure is not None:
            raise self._refusal_error()

    def refuse(self, error: OSError) -> ApiError:
        """Take no writes because of `error`, which changed nothing or was taken back whole.

        Returns the error to answer with. Housekeeping logs a full directory once, for all its logs.
        A lack of descriptors or memory passes, and the next write is tried.
        """
        # The log is as it was, and its disk is not to blame (fault outside-O6).
        if error.errno in OUT_OF_RESOURCES and type(error) is not SyncFailed:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}")

        # A sync that failed left bytes in doubt, even if all it lacked was room.
        if error.errno not in DISK_FULL or isinstance(error, SyncFailed):
            return self.fail(error)
        self.lack_of_room = self.lack_of_room or str(error)
        return self._refusal_error()

    def clear_lack_of_room(self) -> None:
        """Take writes again, unless the log has failed."""
        self.lack_of_room = None

    def fail(self, error: OSError | str) -> ApiError:
        """Take no more writes because of `error`. Returns the error to answer with."""
        # The first error is the reason. Later ones follow from it.
        if self.failure is None:
            logger.error("%s takes no more writes: %s", self.topic_partition, error)
            self.failure = str(error)
            self.suspects_disk = isinstance(error, OSError) and error.errno not in INNOCENT
        return self._refusal_error()

    def _refusal_error(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {self.refusal}")

    def _corruption_error(self, error: CorruptRecord) -> ApiError:
        """Log a corruption once. Each reader gets the error."""
        if str(error) != self._logged_corruption:
            self._logged_corruption = str(error)
            logger.error("%s cannot be read: %s", self.topic_partition, error)
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}")


@attrs.define(eq=False)
class ReadingGuard:
    """The guard of one log, for blocks that only read.

    A lack of descriptors or memory passes: the reader gets an error, and the log goes on. All
    other errors are as under `guard`.
    """

    guard: Guard

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nothing was written, so no bytes are in doubt.
        if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            why = f"{self.guard.topic_partition}: {error}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        self.guard.__exit__(kind, error, trace)
