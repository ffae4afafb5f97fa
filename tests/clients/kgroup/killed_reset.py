"""A reset whose process is killed at one of its steps: `killed_reset STEP GROUP TOPIC`.

The step is a call of the admin client, which is the seam between a reset and the brokers.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Mapping

from clients.admin import Admin
from clients.admin.verdicts import Verdicts
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import Change, JournalledOffsets
from clients.resets.reset import plan_reset
from clients.resets.reset_plan import Named
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.session import KazooSession

BEGUN = "begun"
"""The journal's entry is written, no offset is."""
ONE_PARTITION = "one-partition"
"""The first of the partitions is written."""
ONE_STORE = "one-store"
"""Kafka has the new offsets, ZooKeeper has the old ones."""
WRITTEN = "written"
"""All offsets are written, and the entry is not ended."""
STEPS = (BEGUN, ONE_PARTITION, ONE_STORE, WRITTEN)


class DoomedAdmin(Admin):
    """An admin client that kills its process at a step."""

    step = ""
    has_committed = False

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Verdicts[TopicPartition]:
        """Commit as much as the step says."""
        if self.step == BEGUN:
            die()
        if self.step == ONE_PARTITION:
            first = min(offsets)
            await super().alter_group_offsets(group_id, {first: offsets[first]})
            die()
        verdicts = await super().alter_group_offsets(group_id, offsets)
        self.has_committed = True
        if self.step == ONE_STORE:
            die()
        return verdicts

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read offsets; after the commit that is how they are read back."""
        if self.step == WRITTEN and self.has_committed:
            die()
        return await super().group_offsets(group_id, partitions)


def die() -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(step: str, group: str, topic: str) -> None:
    """Reset the group to the start of the topic."""
    zk = KazooSession(os.environ["KGROUP_ZOOKEEPER"])
    await zk.start()
    async with DoomedAdmin(os.environ["KGROUP_BOOTSTRAP_SERVER"]) as admin:
        admin.step = step
        sessions = Sessions(admin, zk)
        plan = await plan_reset(sessions, group, Named.EARLIEST, [TopicScope(topic)])
        journalled = JournalledOffsets(sessions, await Journal.of(admin))
        await journalled.change(Change.of(plan, "reset"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
