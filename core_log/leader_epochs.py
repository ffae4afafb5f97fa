"""The first offset of each leader epoch that a log has seen (KIP-101).

A replica that comes back asks the leader where its own last epoch ended, and truncates its log
there (KIP-279 goes on until both know the epoch). Epochs go up strictly, start offsets never go
down. The log's `leader-epoch-checkpoint` holds the list.

Changes are written when the log is flushed, before its recovery point moves, or closed. Until then
the file may be older than the log. What recovery reads again it finds in the batches (an epoch
without any is not missed), and entries outside of the log are deleted when it is loaded. So a
broker that begins to lead or to follow a thousand partitions does not write a thousand files first.
"""

from __future__ import annotations

import logging

import attrs

from core_log.checkpoint import LEADER_EPOCHS, CheckpointError, decode_epochs, encode_epochs
from core_log.storage import Directory

UNDEFINED = (-1, -1)

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class LeaderEpochs:
    """The epochs of one log, oldest first, as (epoch, start offset)."""

    directory: Directory
    # Replaced, never changed: a thread may be writing the list.
    entries: list[tuple[int, int]] = attrs.field(factory=list)
    # What the file has.
    _saved: list[tuple[int, int]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._saved = self.entries

    @classmethod
    def load(cls, directory: Directory) -> LeaderEpochs:
        """Read the checkpoint. One that cannot be read counts as empty, with a warning."""
        try:
            return cls(directory, decode_epochs(directory.read(LEADER_EPOCHS)))
        except CheckpointError as error:
            logger.warning("%s/%s is ignored: %s", directory.path, LEADER_EPOCHS, error)
            return cls(directory)

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch, -1 if it is not known."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`. A known epoch changes nothing.

        A leader calls this with its log end offset when it is elected (KAFKA-7415), every replica
        for each batch. An entry that would make the list go back is left out, with a warning.
        """
        if epoch == self.latest_epoch:
            return
        # Ends are found between neighbours, so neither field may go back.
        if epoch < self.latest_epoch or (self.entries and start_offset < self.entries[-1][1]):
            logger.warning(
                "%s: epoch %d at offset %d comes after %s, ignored",
                self.directory.path,
                epoch,
                start_offset,
                self.entries[-1],
            )
            return

        self.entries = [*self.entries, (epoch, start_offset)]

    @property
    def is_saved(self) -> bool:
        """True if the file has the entries as they are now."""
        return self.entries == self._saved

    @property
    def is_file_stale(self) -> bool:
        """True if all epochs were deleted and the file still names some."""
        return not self.entries and bool(self._saved)

    def save(self) -> None:
        """Write the entries unless the file has them, in any thread. Raises OSError.

        The file is safe from a power loss once the directory is synced.
        """
        entries = self.entries
        if entries != self._saved:
            self.directory.write_atomic(LEADER_EPOCHS, encode_epochs(entries))
            self._saved = entries

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which a leader wrote `offset`, -1 if it is not known."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=-1)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Find the largest known epoch that is not above `epoch`, and its end offset.

        Returns (-1, -1) if `epoch` is -1 or above all known epochs. If it is below all known
        epochs, `epoch` itself ends where the first known one begins.
        """
        if epoch == -1 or epoch > self.latest_epoch:
            return UNDEFINED
        # The latest epoch goes on: it ends where the log does.
        if epoch == self.latest_epoch:
            return epoch, log_end_offset

        # An earlier one ends where the next known one begins.
        end = next(start for later, start in self.entries if later > epoch)
        return max((known for known, _ in self.entries if known <= epoch), default=epoch), end

    def truncate_from_end(self, end_offset: int) -> None:
        """Delete the epochs that begin at `end_offset` or above: the log ends there."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Delete the epochs that ended at `start_offset` or before: the log begins there."""
        # An epoch ends where the next one begins, so the last below may reach further.
        below = [entry for entry in self.entries if entry[1] < start_offset]
        kept = self.entries[len(below) :]
        if not below:
            return

        # The epoch that holds the start offset stays, and begins there.
        if not kept or kept[0][1] > start_offset:
            kept = [(below[-1][0], start_offset), *kept]
        self.entries = kept

    def clear(self) -> None:
        """Delete all epochs: the log starts again."""
        self.entries = []
