"""A change that fails between its steps says, and notes, exactly what it has done.

The step is a call of the admin client or of the journal, which are the seams of a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError
from clients.resets.journal import Journal
from clients.resets.journal_entry import JournalEntry
from clients.resets.journalled_offsets import Change, JournalledOffsets
from clients.resets.offset_change import OffsetChange, offset_of
from clients.resets.undo import Undone, undo
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.kgroup.reset_stage import ResetStage, filled_dev
from tests.stage.cluster import DevCluster


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    """Fill the topic."""
    return filled_dev(dev_cluster)


class AdminWithMembers(Admin):
    """The admin client at stock brokers, where a member joins before each commit.

    It commits `over` before it, as a member without an offset does.
    """

    over: Mapping[TopicPartition, OffsetAndMetadata] = {}
    code = ErrorCode.UNKNOWN_MEMBER_ID

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Refuse the commit."""
        if self.over:
            await super().commit_group_offsets(group_id, self.over)
        raise BrokerError(self.code, "a member came between")


class FailingJournal(Journal):
    """A journal whose disk is full when an entry is to be ended."""

    async def replace(self, entry: JournalEntry) -> None:
        raise OSError(28, "No space left on device")


def reset_both(stage: ResetStage) -> tuple[str, int]:
    """Reset a group with an offset in the second partition alone; return the journal's id."""
    group = stage.group({stage.t1: 3})
    return group, stage.reset(group, "--to-earliest")


def undo_with(
    stage: ResetStage, entry_id: int, change: Callable[[AdminWithMembers], None]
) -> Undone:
    async def run() -> Undone:
        async with AdminWithMembers(stage.bootstrap) as admin:
            change(admin)
            offsets = JournalledOffsets(Sessions(admin), await Journal.of(admin))
            return await undo(offsets, entry_id, online=True)

    return asyncio.run(run())


def nothing(admin: AdminWithMembers) -> None:
    """Leave the admin client as it is."""


def other_error(admin: AdminWithMembers) -> None:
    admin.code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


@pytest.mark.parametrize("change", [nothing, other_error])
def test_undo_online_that_has_deleted_says_so_and_the_rest_is_taken_back_later(
    stage: ResetStage, change: Callable[[AdminWithMembers], None]
) -> None:
    group, entry_id = reset_both(stage)
    undone = undo_with(stage, entry_id, change)
    assert undone.outcome is not None
    number = undone.outcome.entry.id
    assert stage.offsets(group) == {1: 0}

    # What was deleted is in the rows and in the journal, and no sentence denies it.
    assert [(c.partition, offset_of(c.new)) for c in undone.changes] == [(stage.t0, None)]
    assert str(undone.outcome.entry.status) == "done"
    assert "nothing was written" not in str(undone.failures)
    assert undone.failures[-1].message == (
        "1 of 2 offsets were changed, the others were not: "
        f"`kgroup undo {entry_id}` takes them back"
    )

    # It does, and so is the deletion taken back by its own entry.
    stage.items("undo", str(entry_id))
    assert stage.offsets(group) == {1: 3}
    stage.items("undo", str(number))
    assert stage.offsets(group) == {0: 0, 1: 3}


def test_deletion_over_which_a_member_has_committed_was_done(stage: ResetStage) -> None:
    group, entry_id = reset_both(stage)

    def commit_over(admin: AdminWithMembers) -> None:
        admin.over = {stage.t0: OffsetAndMetadata(10)}

    undone = undo_with(stage, entry_id, commit_over)
    assert [(c.partition, offset_of(c.new)) for c in undone.changes] == [(stage.t0, None)]
    assert stage.offsets(group) == {0: 10, 1: 0}


def test_change_whose_journal_fails_behind_it_says_how_to_find_out(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})

    async def run() -> Any:
        async with Admin(stage.bootstrap) as admin:
            journal = await Journal.of(admin)
            failing = FailingJournal(journal.logs, journal.cluster_id)
            offsets = JournalledOffsets(Sessions(admin), failing)
            change = OffsetChange(stage.t0, "kafka", OffsetAndMetadata(5), OffsetAndMetadata(2))
            return await offsets.change(Change(group, "reset", [change]))

    outcome = asyncio.run(run())
    assert stage.offsets(group) == {0: 2}
    assert [failure.error for failure in outcome.failures] == ["OSError", "REQUEST_TIMED_OUT"]
    (entry,) = stage.items("journal", "--settle", str(outcome.entry.id))
    assert entry["status"] == "done"
