"""A member of a group by kafka-python.

Versions 3.0.0 to 3.0.12 sometimes stop to be members, at stock brokers too: most often while their
group is founded, a consumer sends neither SyncGroup nor heartbeats ever after; or its calls do not
return. Such a process begins again as a new member, as whoever operates it would have it do.
"""

import os
import sys
import threading
import time
from collections.abc import Collection

import attrs
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from tests.interop.drivers.member import (
    POLL_S,
    Progress,
    Stop,
    parse_arguments,
    say_changed,
    say_error,
    say_message,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


STRANDED_AFTER_S = 25.0
"""A member that has no partitions, or does not turn, for so long is none: whatever fails, a
rebalance takes less, and so does a commit."""
_LOOK_S = 1.0


@attrs.define(eq=False)
class Watch:
    """Begins the process again when its member has been stranded."""

    owned: set[TopicPartition] = attrs.field(factory=set)
    has_turned: bool = False

    def run(self) -> None:
        """Look at the member from time to time, for as long as the process lives."""
        owned_s = turned_s = time.monotonic()
        while time.monotonic() < min(owned_s, turned_s) + STRANDED_AFTER_S:
            time.sleep(_LOOK_S)
            if self.owned:
                owned_s = time.monotonic()
            if self.has_turned:
                turned_s = time.monotonic()
                self.has_turned = False
        say_changed("lost", self.owned)
        say_error(TimeoutError("kafka-python is no member any longer, and begins again"))
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])


class Listener(ConsumerRebalanceListener):
    """Writes what changes. It runs on the client's own thread, where nothing may be awaited."""

    def __init__(self, progress: Progress, watch: Watch) -> None:
        self.progress = progress
        self.watch = watch

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Write what the member gets."""
        self.watch.owned |= set(assigned)
        say_changed("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Write what the member gives up."""
        self.watch.owned -= set(revoked)
        self.progress.forget(revoked)
        say_changed("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Write what others may have already."""
        self.watch.owned -= set(lost)
        self.progress.forget(lost)
        say_changed("lost", lost)


def main() -> None:
    """Consume until SIGTERM."""
    arguments, progress, stop = parse_arguments(), Progress(), Stop.on_sigterm()
    consumer = KafkaConsumer(
        bootstrap_servers=arguments.bootstrap.split(","),
        group_id=arguments.group,
        client_id=arguments.client_id,
        group_instance_id=arguments.instance_id,
        partition_assignment_strategy=[ASSIGNORS[name] for name in arguments.strategies],
        session_timeout_ms=arguments.session_timeout_ms,
        heartbeat_interval_ms=arguments.heartbeat_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **({} if arguments.login is None else arguments.login.of_python),
    )
    watch = Watch()
    consumer.subscribe(arguments.topics, listener=Listener(progress, watch))
    threading.Thread(target=watch.run, daemon=True).start()
    try:
        while not stop.is_wanted:
            watch.has_turned = True
            for message in poll(consumer):
                place = (message.topic, message.partition, message.offset)
                say_message(*place, message.value)
                progress.add(*place)
            commit(consumer, progress)
    finally:
        consumer.close()


def poll(consumer: KafkaConsumer) -> list[ConsumerRecord]:
    """Return what has come; nothing after an error that the client leaves to applications.

    While no broker at all can be reached, it raises that a connection has ended.
    """
    try:
        polled = consumer.poll(timeout_ms=int(POLL_S * 1000))
    except KafkaError as error:
        if not error.retriable:
            raise
        say_error(error)
        return []
    return [message for messages in polled.values() for message in messages]


def commit(consumer: KafkaConsumer, progress: Progress) -> None:
    """Commit what is written; keep it for the next time if that fails."""
    if not progress.offsets:
        return
    offsets = {
        TopicPartition(*partition): OffsetAndMetadata(offset, "", -1)
        for partition, offset in progress.items()
    }
    try:
        consumer.commit(offsets)
    except KafkaError as error:
        say_error(error)
    else:
        progress.end_commit()


if __name__ == "__main__":
    main()
