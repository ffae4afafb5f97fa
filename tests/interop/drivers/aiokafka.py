"""A member of a group by aiokafka."""

import asyncio
import signal
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.interop.drivers.member import (
    POLL_S,
    Arguments,
    Progress,
    parse_arguments,
    say_changed,
    say_error,
    say_message,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):
    """Commits and writes what changes."""

    def __init__(self, consumer: AIOKafkaConsumer, progress: Progress) -> None:
        self.consumer = consumer
        self.progress = progress

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Write what the member gets."""
        say_changed("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit, and write what the member gives up."""
        await commit(self.consumer, self.progress)
        self.progress.forget(revoked)
        say_changed("revoked", revoked)


async def consume(arguments: Arguments) -> None:
    """Consume until SIGTERM."""
    progress, stop = Progress(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        client_id=arguments.client_id,
        group_instance_id=arguments.instance_id,
        partition_assignment_strategy=[ASSIGNORS[name] for name in arguments.strategies],
        session_timeout_ms=arguments.session_timeout_ms,
        heartbeat_interval_ms=arguments.heartbeat_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **({} if arguments.login is None else arguments.login.of_python),
        # Otherwise it may know one broker alone for minutes, and nobody once that one is gone.
        metadata_max_age_ms=2000,
    )
    consumer.subscribe(arguments.topics, listener=Listener(consumer, progress))
    async with consumer:
        while not stop.is_set():
            fetched = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            for messages in fetched.values():
                for message in messages:
                    place = (message.topic, message.partition, message.offset)
                    say_message(*place, message.value)
                    progress.add(*place)
            await commit(consumer, progress)


async def commit(consumer: AIOKafkaConsumer, progress: Progress) -> None:
    """Commit what is written; keep it for the next time if that fails."""
    if not progress.offsets:
        return
    offsets = {TopicPartition(*partition): offset for partition, offset in progress.items()}
    try:
        await consumer.commit(offsets)
    except KafkaError as error:
        say_error(error)
    else:
        progress.end_commit()


if __name__ == "__main__":
    asyncio.run(consume(parse_arguments()))
