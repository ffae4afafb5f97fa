"""What commands of `kgroup` cost, by the number of groups, offsets, members and journal entries.

A row calls what its command calls, in the place of a process of the simulated world.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

import attrs

from clients.admin import LATEST_TIME, Admin, GroupMemberId
from clients.command_line.output import Listing, Target
from clients.command_line.sessions import connected
from clients.command_line.topic_scope import TopicScope
from clients.kgroup.at_risk import risks_of
from clients.kgroup.copy_group import CopyJob
from clients.kgroup.delete import delete_groups
from clients.kgroup.delete_offsets import delete_offsets_of
from clients.kgroup.describe import COLUMNS, Wanted, describe_groups
from clients.kgroup.doctor import examine
from clients.kgroup.events import show_events
from clients.kgroup.export import export_offsets
from clients.kgroup.health import health_of
from clients.kgroup.history import history_of
from clients.kgroup.import_offsets import ImportJob, import_offsets
from clients.kgroup.journal import read_journal
from clients.kgroup.kick import remove_members
from clients.kgroup.list import COLUMNS as LIST_COLUMNS
from clients.kgroup.list import Wanted as WantedNames
from clients.kgroup.list import list_groups
from clients.kgroup.offsets import list_offsets
from clients.kgroup.rename import rename
from clients.kgroup.reset import ResetJob, Resets, reset_groups
from clients.kgroup.simulate import read_group
from clients.kgroup.top import look_once
from clients.kgroup.undo import take_back
from clients.migrator import Migrator
from clients.resets.journal import KEEP_MS, Journal
from clients.resets.journal_entry import JournalEntry, Status, records_of
from clients.resets.journal_topic import JournalTopic
from clients.resets.offset_change import OffsetChange
from clients.resets.offset_export import ExportedOffset
from clients.resets.reset_plan import Named, ShiftBy
from clients.serve.monitor import Monitor
from clients.watching.assignment_simulation import SimulatedMember, simulate
from offsets.migration import Command, Run
from offsets.zookeeper_store import ZooKeeperStore
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.scale.rows import join
from tests.scale.stage import GROUP, TIMEOUT_MS, TOPIC, Act, Row, Stage
from zk.migration_znodes import OffsetStorage
from zk.znodes import ConsumerGroup

FEW = 3
"""Offsets of each of many groups."""
DAY_MS = 86_400_000
EVERYTHING = re.compile("")
SUBSCRIPTION = encode_subscription(Subscription((TOPIC,)))
ASSIGNMENT = encode_assignment(Assignment((TopicPartition(TOPIC, 0),)))


def target_of(stage: Stage) -> Target:
    """Return the cluster as a command is told of it."""
    return Target(stage.cluster.bootstrap, None, {}, TIMEOUT_MS)


def quietly(act: Act) -> Act:
    """Do it without its words on the terminal."""

    async def quiet(stage: Stage) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            await act(stage)

    return quiet


# ---- preparations


def few_partitions(stage: Stage) -> Stage:
    """Return the stage of the topic that all of the many groups consume."""
    return Stage(stage.cluster, FEW, stage.connections)


async def make_groups(stage: Stage) -> None:
    """Make groups with a few offsets each: every group is at another record."""
    few = few_partitions(stage)
    await few.create_partitions()
    for offset, group_id in enumerate(stage.groups, 1):
        await few.produce(few.partitions)
        await stage.commit(group_id, few.partitions, offset - 1)
    await few.produce(few.partitions)


async def make_offsets(stage: Stage) -> None:
    """Make a group with an offset in each of the partitions, at records that are there."""
    await stage.create_partitions()
    for _ in range(2):
        await stage.produce(stage.partitions)
    await stage.commit(GROUP, stage.partitions)


async def make_commits(stage: Stage) -> None:
    """Make a group that has committed so often."""
    few = few_partitions(stage)
    await few.create_partitions()
    for _ in range(stage.size):
        await stage.commit(GROUP, few.partitions)


async def make_entries(stage: Stage) -> None:
    """Make groups, one of which was reset, behind so many other entries of the journal."""
    few = few_partitions(stage)
    await few.create_partitions()
    await few.produce(few.partitions)
    for group_id in stage.groups[:10]:
        await stage.commit(group_id, few.partitions)

    async with connected(target_of(stage)) as sessions:
        journal = await Journal.of(sessions.admin)
        topic = journal.logs[0]
        assert isinstance(topic, JournalTopic)
        await topic.create()
        changes = tuple(
            OffsetChange(partition, "kafka", OffsetAndMetadata(0), OffsetAndMetadata(1))
            for partition in few.partitions
        )
        for number in range(1, stage.size + 1):
            entry = JournalEntry(
                id=number,
                at_ms=0,
                who="somebody",
                reason=None,
                command="kgroup reset",
                cluster=journal.cluster_id,
                group=stage.groups[0],
                action="reset",
                status=Status.DONE,
                token=str(number),
                changes=changes,
            )
            await topic.append(records_of(entry))


async def make_members(stage: Stage) -> None:
    """Make a group with so many members that stay."""
    await stage.create_partitions()
    await join(stage, SUBSCRIPTION, ASSIGNMENT)


async def make_rebalances(stage: Stage) -> None:
    """Make a group that has rebalanced so often."""
    await few_partitions(stage).create_partitions()
    alone = Stage(stage.cluster, 1, stage.connections)
    for _ in range(stage.size):
        await join(alone, SUBSCRIPTION, ASSIGNMENT)
        async with Admin(stage.bootstrap) as admin:
            group = (await admin.describe_groups([GROUP]))[GROUP].group
            members = [GroupMemberId(member.member_id) for member in group.members]
            await admin.remove_group_members(GROUP, members, "scale")


async def make_offsets_in_zookeeper(stage: Stage) -> None:
    """Make a group in ZooKeeper with an offset in each of the partitions."""
    await stage.create_partitions()
    await stage.produce(stage.partitions)
    session = await stage.cluster.open_session()
    offsets = dict.fromkeys(stage.partitions, OffsetAndMetadata(1))
    await ZooKeeperStore(session).commit(GROUP, offsets)
    await session.ensure_path(ConsumerGroup.ids_path(GROUP))
    await session.close()


# ---- commands for all groups


async def list_names(stage: Stage) -> None:
    """List all groups, with what a wide table has of each."""
    keys = {column.key for column in LIST_COLUMNS}
    wanted = WantedNames(EVERYTHING, set(), set(), (), keys, only_with_lag=False)
    are_whole(await list_groups(target_of(stage), wanted), stage.size)


async def describe_all(stage: Stage) -> None:
    """Describe all groups."""
    wanted = Wanted(None, EVERYTHING, (), {c.key for c in COLUMNS["offsets"]}, False)
    listing, _ = await describe_groups(target_of(stage), wanted, "offsets")
    are_whole(listing, FEW * stage.size)


async def export_all(stage: Stage) -> None:
    """Export the offsets of all groups."""
    offsets, failures, _ = await export_offsets(target_of(stage), (), ("kafka",))
    assert (len(offsets), failures) == (FEW * stage.size, [])


async def import_all(stage: Stage) -> None:
    """Import an offset of each group."""
    offset = OffsetAndMetadata(1)
    offsets = [
        ExportedOffset(group_id, TopicPartition(TOPIC, 0), "kafka", offset)
        for group_id in stage.groups
    ]
    are_whole(await import_offsets(target_of(stage), ImportJob(offsets)), stage.size)


async def plan_resets_of_all(stage: Stage) -> None:
    """Show what a reset of all groups would do."""
    await reset_all(stage, execute=False)


async def reset_each(stage: Stage) -> None:
    """Reset all groups."""
    resets = await reset_all(stage, execute=True)
    assert len(resets.outcomes) == stage.size


async def reset_all(stage: Stage, *, execute: bool, groups: int | None = None) -> Resets:
    """Reset all groups, or some, or show what that would do."""
    job = ResetJob(
        None if groups is None else stage.groups[:groups],
        Named.EARLIEST,
        None,
        None,
        execute=execute,
        online=False,
        reason=None,
        keep_ms=KEEP_MS,
    )
    resets = await reset_groups(target_of(stage), job)
    assert resets.failures == []
    return resets


async def delete_all(stage: Stage) -> None:
    """Delete all groups."""
    are_whole(await delete_groups(target_of(stage), None), stage.size)


async def judge_all(stage: Stage) -> None:
    """Judge all groups by their commits."""
    listing, _ = await health_of(target_of(stage), ())
    are_whole(listing, FEW * stage.size)


async def look_for_risks(stage: Stage) -> None:
    """Look which groups will lose what."""
    listing, _ = await risks_of(target_of(stage), (), DAY_MS)
    assert listing.errors == []


async def look_at_top(stage: Stage) -> None:
    """Look once at the groups with the largest lag."""
    assert len((await look_once(target_of(stage))).groups) == stage.size


async def examine_topic(stage: Stage) -> None:
    """Look at the offsets topic, in which all groups have committed."""
    await examine(target_of(stage), 1000)


async def watch_all(stage: Stage) -> None:
    """Look twice at all groups, record them, and judge them for the page."""
    with tempfile.TemporaryDirectory() as folder:
        async with connected(target_of(stage)) as sessions:
            monitor = Monitor(sessions, Path(folder) / "history", KEEP_MS, 1.0)
            for _ in range(2):
                await monitor.look()
            assert len(await monitor.group_items()) == stage.size
            assert len(await monitor.health()) == FEW * stage.size
            monitor.close()


# ---- commands for a group with many offsets


async def describe_one(stage: Stage) -> None:
    """Describe a group with many offsets."""
    wanted = Wanted((GROUP,), EVERYTHING, (), {c.key for c in COLUMNS["offsets"]}, False)
    listing, _ = await describe_groups(target_of(stage), wanted, "offsets")
    are_whole(listing, stage.size)


async def reset_and_undo(stage: Stage) -> None:
    """Reset a group with many offsets, and take that back."""
    job = ResetJob(
        (GROUP,),
        ShiftBy(-1),
        None,
        None,
        execute=True,
        online=False,
        reason=None,
        keep_ms=KEEP_MS,
    )
    outcome = (await reset_groups(target_of(stage), job)).outcomes[GROUP]
    assert len(outcome.entry.changes) == stage.size
    undone = await take_back(
        target_of(stage), outcome.entry.id, force=False, dry_run=False, reason=None, online=False
    )
    assert len(undone.changes) == stage.size


async def rename_one(stage: Stage) -> None:
    """Rename a group with many offsets: they are copied, then deleted."""
    job = CopyJob(GROUP, "other", None, False, False, False, "", removes_source=True)
    copied, deleted, failures = await rename(target_of(stage), job)
    assert deleted is not None
    assert (len(copied.plan.rows), failures) == (stage.size, [])


async def delete_some(stage: Stage) -> None:
    """Delete the offsets of a group by topic."""
    listing = await delete_offsets_of(target_of(stage), GROUP, [TopicScope(TOPIC)])
    are_whole(listing, stage.size)


async def look_up(stage: Stage) -> None:
    """Look the ends of all partitions of a topic up."""
    are_whole(await list_offsets(target_of(stage), TOPIC, LATEST_TIME), stage.size)


async def migrate(stage: Stage) -> None:
    """Begin to move the offsets of a group from ZooKeeper to Kafka: all are copied."""
    session = await stage.cluster.open_session()
    async with Admin(stage.bootstrap) as admin:
        run = Run(command=Command.START, target=OffsetStorage.KAFKA)
        _, finish = await Migrator(session, admin, GROUP).carry_out(run)
        assert not finish.obstacles, finish
        assert len(await admin.group_offsets(GROUP)) == stage.size
    await session.close()


# ---- commands for a group's past


async def show_commits(stage: Stage) -> None:
    """Show the commits of a group."""
    listing = await history_of(target_of(stage), GROUP, (), 0, None)
    are_whole(listing, FEW * stage.size)


async def show_rebalances(stage: Stage) -> None:
    """Show the rebalances of a group."""
    await show_events(target_of(stage), GROUP, 0, "json", follow=False)


# ---- commands beside many entries of the journal


async def show_journal(stage: Stage) -> None:
    """Show the entries of the journal."""
    entries, _ = await read_journal(target_of(stage))
    assert len(entries) == stage.size


async def reset_beside_entries(stage: Stage) -> None:
    """Reset some groups while the journal has many entries: it is read once, and trimmed once."""
    assert len((await reset_all(stage, execute=True, groups=10)).outcomes) == 10


# ---- commands for a group with many members


async def describe_members(stage: Stage) -> None:
    """Describe the members of a group."""
    wanted = Wanted((GROUP,), EVERYTHING, (), {c.key for c in COLUMNS["members"]}, False)
    listing, _ = await describe_groups(target_of(stage), wanted, "members")
    are_whole(listing, stage.size)


async def simulate_a_change(stage: Stage) -> None:
    """Read the members of a group, and simulate the coming of one more."""
    scene = await read_group(target_of(stage), GROUP, False)
    members = [*scene.members, SimulatedMember("more", (TOPIC,))]
    for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        assert simulate(assignor, members, scene.partition_counts).shares


async def kick_all(stage: Stage) -> None:
    """Remove all members of a group."""
    are_whole(await remove_members(target_of(stage), GROUP, (), "scale"), stage.size)


def are_whole(listing: Listing, rows: int) -> None:
    """Check that the listing has all rows, and no failure."""
    assert (len(listing.items), list(listing.errors)) == (rows, [])


TOOL_ROWS = tuple(
    attrs.evolve(row, act=quietly(row.act))
    for row in (
        Row("kgroup list", list_names, make_groups),
        Row("kgroup describe of all groups", describe_all, make_groups),
        Row("kgroup describe of many offsets", describe_one, make_offsets),
        Row("kgroup describe of many members", describe_members, make_members),
        Row("kgroup export of all groups", export_all, make_groups),
        Row("kgroup import of all groups", import_all, make_groups),
        Row("kgroup reset of all groups, a dry run", plan_resets_of_all, make_groups),
        Row("kgroup reset of all groups", reset_each, make_groups),
        Row("kgroup reset and undo of many offsets", reset_and_undo, make_offsets),
        Row("kgroup reset beside many entries of the journal", reset_beside_entries, make_entries),
        Row("kgroup journal", show_journal, make_entries),
        Row("kgroup rename of many offsets", rename_one, make_offsets),
        Row("kgroup delete of all groups", delete_all, make_groups),
        Row("kgroup delete-offsets", delete_some, make_offsets),
        Row("kgroup offsets", look_up, make_offsets),
        Row("kgroup health", judge_all, make_groups),
        Row("kgroup at-risk", look_for_risks, make_groups),
        Row("kgroup top", look_at_top, make_groups),
        Row("kgroup doctor", examine_topic, make_groups),
        Row("kgroup record and serve", watch_all, make_groups),
        Row("kgroup history", show_commits, make_commits),
        Row("kgroup events", show_rebalances, make_rebalances, sizes=(100, 1_000)),
        Row("kgroup simulate", simulate_a_change, make_members),
        Row("kgroup kick", kick_all, make_members),
        Row("kgroup migrate", migrate, make_offsets_in_zookeeper),
    )
)
