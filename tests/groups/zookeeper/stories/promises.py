"""The promises of a group: who delivers and commits what, and that nothing is missed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from clients.high_level.streams import PartitionFeed
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.registration import consumer_of, thread_ids
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.stories.figures import GROUP, MORTAL, OWNERS
from zk.api import Create
from zk.znodes import ConsumerOffset

if TYPE_CHECKING:
    from tests.groups.zookeeper.stories.player import Player
    from tests.groups.zookeeper.stories.story import Story


class Promises:
    """What must hold whenever something happens, and in the end."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.seen: dict[TopicPartition, set[int]] = {}
        self.resets: dict[TopicPartition, int] = {}
        self.taken: dict[str, float] = {}
        """Owner nodes that were deleted by hand, and until when that may go unseen."""
        self.repeated = 0

    def check_deliveries(self) -> None:
        """Check that a partition is delivered only by its owner in its present session."""
        for name, player in self.story.players.items():
            for partition in player.delivers:
                owner = self.owner(partition)
                if owner != (player.consumer_id, player.session.session_id):
                    self._violated_unless_taken(
                        partition, f"{name} delivers {partition}, which is owned by {owner}"
                    )

    def _violated_unless_taken(self, partition: TopicPartition, what: str) -> None:
        """Record a violation, unless somebody has deleted the owner node a moment ago."""
        taken_until_s = self.taken.get(f"{OWNERS}{partition.topic}/{partition.partition}", 0.0)
        if self.story.now_s() > taken_until_s:
            self.story.violated(what)

    def check_commit(self, op: Any, session_id: int, before: bytes | None) -> None:
        topic, partition = op.path.split("/")[-2:]
        topic_partition = TopicPartition(topic, int(partition))
        owner = self.owner(topic_partition)
        if owner is None or owner[1] != session_id:
            what = f"session {session_id} commits {topic_partition}, which is owned by {owner}"
            self._violated_unless_taken(topic_partition, what)
        if isinstance(op, Create) or before is None:
            return
        if ConsumerOffset.decode(op.data).offset < ConsumerOffset.decode(before).offset:
            what = f"the commit of {topic_partition} goes back from {before!r} to {op.data!r}"
            self._violated_unless_taken(topic_partition, what)

    def check_reset(self, player: Player, feed: PartitionFeed, offset: int) -> None:
        """Check that no group is reset again while messages exist that came after a reset."""
        partition = feed.partition
        former = self.resets.get(feed.partition)
        self.story.tell(player.name, f"{partition} is reset to {offset}")
        if self.story.reset == "largest":
            self.story.bites["reset behind queued messages"] += feed.stream.queue_size > 0
            if former is not None and former >= self.story.log_bounds(partition)[0]:
                what = f"{partition} to {offset}, and all since {former} is there"
                self.story.violated(f"{player.name} resets {what}")
        self.resets[partition] = offset

    def check_told(self, player: Player, ownership: Mapping[str, Set[int]]) -> None:
        """Check that a listener is called while the partitions are still its own to commit."""
        if player.session.server_expired or player.name not in self.story.players:
            return
        for topic, numbers in ownership.items():
            for partition in (TopicPartition(topic, number) for number in sorted(numbers)):
                owner = self.owner(partition)
                if owner != (player.consumer_id, player.session.session_id):
                    what = f"{partition}, which is owned by {owner}"
                    what = f"the listener of {player.name} is called for {what}"
                    self._violated_unless_taken(partition, what)

    def handed_out(self, player: Player, partition: TopicPartition, message: Any) -> None:
        if player.name in self.story.players:  # one that leaves has been stopped, and then has left
            owner = self.owner(partition)
            if owner != (player.consumer_id, player.session.session_id):
                what = f"{message.offset} of {partition}"
                what = f"{player.name} hands out {what}, which is owned by {owner}"
                self._violated_unless_taken(partition, what)
        seen = self.seen.setdefault(partition, set())
        self.repeated += message.offset in seen
        seen.add(message.offset)

    def owner(self, partition: TopicPartition) -> tuple[str, int] | None:
        node = self.story.zk.tree.get(f"{OWNERS}{partition.topic}/{partition.partition}")
        if node is None:
            return None
        return consumer_of((node.data or b"").decode()), node.ephemeral_owner

    def check_end(self) -> None:
        threads = [
            thread
            for player in self.story.players.values()
            for thread in thread_ids(player.consumer_id, player.num_streams)
        ]
        partitions = {topic: range(count) for topic, count in self.story.partitions.items()}
        leaders = {TopicPartition(t, p): p % 3 for t, some in partitions.items() for p in some}
        assign = ASSIGNORS[self.story.strategy]
        shares = assign(dict.fromkeys(partitions, threads), partitions, leaders)
        stray = [path for path in self.story.zk.tree if path.startswith(f"{OWNERS}{MORTAL}/")]
        if stray and MORTAL not in partitions:
            self.story.violated(f"in the end {stray} are owned, of a topic that is deleted")

        for partition, thread in shares.items():
            node = self.story.zk.tree.get(f"{OWNERS}{partition.topic}/{partition.partition}")
            owner = (node.data or b"").decode() if node else None
            if owner != thread:
                self.story.violated(f"in the end {partition} is owned by {owner}, not by {thread}")
            name = consumer_of(thread).removeprefix(f"{GROUP}_")
            if partition not in self.story.players[name].delivers:
                self.story.violated(f"in the end {name} does not deliver {partition}")
            due = range(self.resets.get(partition, 0), self.story.log_bounds(partition)[1])
            if missed := set(due) - self.seen.get(partition, set()):
                self.story.violated(f"nobody was handed {sorted(missed)} of {partition}")
