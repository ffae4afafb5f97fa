"""A member of a group by kafka-python."""

from collections.abc import Collection

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


class Listener(ConsumerRebalanceListener):
    """Writes what changes. It runs on the client's own thread, where nothing may be awaited."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Write what the member gets."""
        say_changed("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Write what the member gives up."""
        self.progress.forget(revoked)
        say_changed("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Write what others may have already."""
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
    )
    consumer.subscribe(arguments.topics, listener=Listener(progress))
    try:
        while not stop.is_wanted:
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
