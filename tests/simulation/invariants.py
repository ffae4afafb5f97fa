"""What must never happen, whatever befalls the cluster; checked as the story goes.

a  an acknowledged record is lost, or two of one writer change places; one of an idempotent writer
   is there twice, or before an earlier one
b  a reader sees a high watermark go back, whoever leads (more than Kafka promises: KIP-207 helps
   those alone who ask for offsets)
c  replicas differ below the high watermark; more than that: two logs hold different batches under
   one offset and one leader epoch; or a replica comes into the in-sync set that lacks a record that
   was acknowledged
d  a partition has two leaders in one leader epoch, or its leader epoch goes back
e  two controllers reign in one epoch, or epochs go back, or one that was replaced writes a state,
   or is heard by a broker: it tells of an earlier leader epoch than before
f  a committed offset goes back
g  when peace is made, something does not come back within a minute: all replicas in sync, alike to
   the byte, every partition led, and every broker telling clients by whom
h  the state of a replica contradicts itself (`Partition.check`)

Logs are read from the disks, by what is written here and not by the product. Without a flush after
each record a power failure may take records that were acknowledged by a single replica: from then
on (`loss_allowed`) what is lost is counted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

from core_log.memory_directory import MemoryDirectory
from protocol.topic_partition import TopicPartition
from zk.znodes import Controller, ControllerEpoch, PartitionState

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from tests.simulation.cluster import Cluster

TOPIC = "t"
BATCH_PREFIX = 12  # base offset, length
LAST_DELTA = slice(23, 27)  # from the first offset of a batch to its last
NO_LEADER = -1


class Invariants:
    """Told what happens, it says when it must not have."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.story = cluster.world.story
        self.sent: set[bytes] = set()
        self.acked: dict[tuple[int, int], bytes] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self._acked_end: dict[int, int] = {}
        self._seen: dict[tuple[int, int], bytes] = {}
        self._last_acked: dict[tuple[str, int], tuple[int, int]] = {}
        self._watermarks: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._controllers: dict[int, int] = {}
        self._epoch = -1  # of the last controller
        self._batches: dict[tuple[TopicPartition, int, int, int], int] = {}
        self._looked_at: dict[tuple[str, TopicPartition, str], tuple[bytes, int]] = {}
        self._zxid = -1

    # ---- a: records

    def acknowledged(
        self, writer: str, number: int, partition: int, offset: int, value: bytes
    ) -> None:
        """A writer was told that its record has this offset. Its numbers grow."""
        self.story.counts["acknowledged"] += 1
        self.acked[partition, offset] = value
        self._acked_end[partition] = max(self._acked_end.get(partition, 0), offset + 1)
        before = self._last_acked.get((writer, partition), (-1, -1))
        if number > before[0]:
            if offset <= before[1] and not self.cluster.loss_allowed:
                self._fail(
                    f"a: {writer}'s record {number} of {partition} is at {offset}, its earlier"
                    f" record {before[0]} at {before[1]}"
                )
            self._last_acked[writer, partition] = (number, offset)
        self._agree(writer, partition, offset, value)

    def read(self, reader: str, partition: int, offset: int, value: bytes) -> None:
        """A reader was given this record."""
        self.story.counts["read"] += 1
        if value not in self.sent:
            self._fail(f"a: {reader} read {value[:40]!r} at {partition}/{offset}: nobody sent it")
        self._agree(reader, partition, offset, value)

    def _agree(self, who: str, partition: int, offset: int, value: bytes) -> None:
        known = self._seen.setdefault((partition, offset), value)
        if known != value:
            if self.cluster.loss_allowed:
                self.story.counts["replaced after a power failure"] += 1
                self._seen[partition, offset] = value
                return
            self._fail(
                f"a: {who} has {value[:20]!r} at {partition}/{offset}, somebody had {known[:20]!r}"
            )

    def all_there(self, log: Mapping[tuple[int, int], bytes]) -> None:
        """At the end: what was acknowledged is there. `log`: all there is, (partition, offset)."""
        for place, value in self.acked.items():
            if log.get(place) == value:
                continue
            if self.cluster.loss_allowed:
                self.story.counts["lost after a power failure"] += 1
            else:
                found = log.get(place)
                self._fail(f"a: {value[:20]!r}, acknowledged at {place}, is lost: {found!r:.30}")

    def once_in_order(self, log: Mapping[tuple[int, int], bytes], writers: Container[str]) -> None:
        """At the end: what idempotent writers wrote is there as they wrote, whatever they heard."""
        last: dict[tuple[str, int], int] = {}
        for (partition, offset), value in sorted(log.items()):
            writer, _, number, _ = value.decode().split("/")
            if writer in writers:
                before = last.get((writer, partition), -1)
                if int(number) <= before:
                    self._fail(
                        f"a: {writer}, idempotent, has its record {number} of {partition} at"
                        f" {offset}, after its record {before}"
                    )
                last[writer, partition] = int(number)

    # ---- b and f: what clients saw

    def watermark(self, reader: str, partition: int, high_watermark: int) -> None:
        """A reader, which asks again only when answered, was told this."""
        known = self._watermarks.get((reader, partition), -1)
        if high_watermark < known and not self.cluster.loss_allowed:
            self._fail(f"b: {reader} saw {partition} end at {known}, now at {high_watermark}")
        self._watermarks[reader, partition] = high_watermark

    def committed(self, group: str, partition: int, offset: int) -> None:
        """A commit was acknowledged; the only committer of the group never goes back."""
        self.story.counts["commits"] += 1
        self._committed[group, partition] = offset

    def found_committed(self, group: str, partition: int, offset: int) -> None:
        """The coordinator says that this is committed, after all acknowledged commits."""
        before = self._committed.get((group, partition), -1)
        if offset < before:
            if self.cluster.loss_allowed:
                self.story.counts["commit lost after a power failure"] += 1
                self._committed[group, partition] = offset
            else:
                self._fail(f"f: {group} had committed {before} of {partition}, and finds {offset}")

    # ---- d and e: what is in ZooKeeper

    def look_at_tree(self, tree: Mapping[str, Any], zxid: int) -> None:
        """After every transaction."""
        if zxid == self._zxid:
            return
        self._zxid = zxid
        node, raised = tree.get(Controller.path()), tree.get(ControllerEpoch.path())
        if raised is not None:
            epoch = ControllerEpoch.decode(raised.data).epoch
            if epoch < self._epoch:
                self._fail(f"e: controller epoch {epoch} after {self._epoch}")
            self._epoch = epoch
            if node is not None:
                self._controller(Controller.decode(node.data).broker_id, epoch)
        for path in tree:
            if path.endswith("/state"):
                _, _, _, topic, _, number, _ = path.split("/")
                state = PartitionState.decode(tree[path].data, path)
                self._state(TopicPartition(topic, int(number)), state)

    def _controller(self, broker_id: int, epoch: int) -> None:
        known = self._controllers.get(epoch)
        if known is None:
            self._controllers[epoch] = broker_id
            self.story.tell("zookeeper", f"controller is {broker_id}, epoch {epoch}")
            if len(self._controllers) > 1:
                self.story.bite("controller moved")
        elif known != broker_id:
            self._fail(f"e: {known} and {broker_id} are controllers in epoch {epoch}")

    def _state(self, tp: TopicPartition, state: PartitionState) -> None:
        before = self.states.get(tp)
        if before == state:
            return
        self.states[tp] = state
        self.story.tell(
            "zookeeper",
            f"{tp} leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)}",
        )
        if state.leader != NO_LEADER:
            known = self._leaders.setdefault((tp, state.leader_epoch), state.leader)
            if known != state.leader:
                self._fail(f"d: {tp} is led by {known} and {state.leader} in {state.leader_epoch}")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch:
            self._fail(f"d: {tp} goes back from epoch {before.leader_epoch}")
        if state.leader_epoch > before.leader_epoch and state.controller_epoch != self._epoch:
            self._fail(f"e: {tp}: controller {state.controller_epoch} writes in {self._epoch}")
        if state.leader != before.leader:
            self.story.bite("leader moved")
        if len(state.isr) < len(before.isr):
            self.story.bite("isr shrank")
        for broker_id in set(state.isr) - set(before.isr):
            self._joined(tp, broker_id)

    # ---- c: what is on the disks

    def check_replica(self, host: str, partition: Partition) -> None:
        """Check the state of a replica, after a turn of its broker."""
        try:
            partition.check()
        except AssertionError as error:
            self._fail(f"h: {host}: {partition.topic_partition}: {error}")

    def _joined(self, tp: TopicPartition, broker_id: int) -> None:
        """A replica came into the in-sync set."""
        node = next(each for each in self.cluster.nodes if each.broker_id == broker_id)
        log = node.log(tp)
        end = -1 if log is None else log_end(log)
        lacks = self._acked_end.get(tp.partition, 0) if tp.topic == TOPIC else 0
        if end < lacks and not self.cluster.loss_allowed:
            self._fail(
                f"c: {node.host} is in sync with {tp}, has it to {end}, acknowledged {lacks}"
            )

    def look_at_logs(self) -> None:
        """Compare what the brokers have written."""
        for node in self.cluster.nodes:
            for name in node.directory.children() if node.serving else ():
                topic, _, number = name.rpartition("-")
                if number.isdigit():
                    log = node.directory.child(name)
                    self._look_at_log(node.host, TopicPartition(topic, int(number)), log)

    def _look_at_log(self, host: str, tp: TopicPartition, log: MemoryDirectory) -> None:
        for name in segments(log):
            data = whole(log, name)
            known, end = self._looked_at.get((host, tp, name), (b"", 0))
            if known != data:
                end = self._look_at_batches(host, tp, data, end if data.startswith(known) else 0)
                self._looked_at[host, tp, name] = (data, end)

    def _look_at_batches(self, host: str, tp: TopicPartition, data: bytes, end: int) -> int:
        """Look at what comes after the batches that end there; where they end now."""
        for offset, epoch, batch in batches(data, end):
            end += len(batch)
            crc = crc32(batch)
            size = 0 if tp.topic == TOPIC else len(batch)  # cleaned, others may have less of it
            if self._batches.setdefault((tp, offset, epoch, size), crc) != crc:
                if self.cluster.loss_allowed:
                    self._batches[tp, offset, epoch, size] = crc
                    continue
                self._fail(f"c: {host} has another batch at {tp}/{offset} of epoch {epoch}")
        return end

    def settled(self) -> str:
        """When all is quiet: what keeps the replicas from being in sync and alike."""
        for tp, state in self.states.items():
            if len(state.isr) < len(self.cluster.nodes[: self.cluster.replication]):
                return f"{tp} has isr {list(state.isr)}"
            if state.leader == NO_LEADER:
                return f"{tp} has no leader"
            if tp.topic == TOPIC:
                logs = [
                    b"".join(whole(log, name) for name in segments(log))
                    for node in self.cluster.nodes
                    if (log := node.log(tp)) is not None
                ]
                if any(log != logs[0] for log in logs):
                    return f"the logs of {tp} differ: {[len(log) for log in logs]} bytes"
        return ""

    def leaders(self) -> dict[int, tuple[int, int]]:
        """(leader, leader epoch) of the topic's partitions, as the states have it."""
        return {
            tp.partition: (state.leader, state.leader_epoch)
            for tp, state in self.states.items()
            if tp.topic == TOPIC
        }

    def told(self, host: str, leaders: Mapping[int, tuple[int, int]]) -> None:
        """A broker, which is asked again only when it has answered, tells this of who leads."""
        for partition, (_, epoch) in leaders.items():
            known = self._told.get((host, partition), -1)
            if 0 <= epoch < known:
                self._fail(f"e: {host} tells of epoch {epoch} of {partition} after {known}")
            self._told[host, partition] = epoch

    def _fail(self, what: str) -> None:
        self.world.fail(what)


def segments(log: MemoryDirectory) -> list[str]:
    """The names of a log's files of batches, in order."""
    return [name for name in log.files() if name.endswith(".log")]


def whole(log: MemoryDirectory, name: str) -> bytes:
    """What is in a file."""
    file = log.open_segment(name)
    return file.read(0, file.size)


def log_end(log: MemoryDirectory) -> int:
    """The offset after the last whole batch on the disk, or where the last segment begins."""
    last = segments(log)[-1:]
    end = int(last[0].partition(".")[0]) if last else 0
    for offset, _, batch in batches(whole(log, last[0])) if last else ():
        end = offset + int.from_bytes(batch[LAST_DELTA], "big") + 1
    return end


def batches(data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """(base offset, leader epoch, bytes) of each whole batch of a segment from `start` on."""
    while start + BATCH_PREFIX + 5 <= len(data):
        size = BATCH_PREFIX + int.from_bytes(data[start + 8 : start + 12], "big")
        if size <= BATCH_PREFIX or start + size > len(data):
            break
        offset = int.from_bytes(data[start : start + 8], "big")
        epoch = int.from_bytes(data[start + 12 : start + 16], "big", signed=True)
        yield offset, epoch, data[start : start + size]
        start += size
