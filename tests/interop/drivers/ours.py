"""A member of a group by our streams, with membership=coordinator."""

import asyncio
import contextlib
import signal
from collections.abc import Set

from clients.errors import ClientError
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from offsets.store_errors import CommitFailed
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.interop.drivers.member import (
    POLL_S,
    Arguments,
    Progress,
    parse_arguments,
    say_changed,
    say_error,
    say_message,
)


class Listener:
    """Commits and writes what changes."""

    def __init__(self, connector: ConsumerConnector, progress: Progress) -> None:
        self.connector = connector
        self.progress = progress

    def before_releasing_partitions(self, _: object) -> None:
        """Leave it to `on_partitions_revoked`."""

    def before_starting_fetchers(self, *_: object) -> None:
        """Leave it to `on_partitions_assigned`."""

    def on_partitions_assigned(self, partitions: Set[TopicPartition]) -> None:
        """Write what the member gets."""
        say_changed("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Commit, and write what the member gives up."""
        await commit(self.connector, self.progress)
        self.progress.forget(partitions)
        say_changed("revoked", partitions)

    def on_partitions_lost(self, partitions: Set[TopicPartition]) -> None:
        """Write what others have already."""
        self.progress.forget(partitions)
        say_changed("lost", partitions)


async def consume(arguments: Arguments) -> None:
    """Consume until SIGTERM."""
    progress, stop = Progress(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = {
        "membership": "coordinator",
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "client.id": arguments.client_id,
        "partition.assignment.strategy": ",".join(arguments.strategies),
        "session.timeout.ms": arguments.session_timeout_ms,
        "heartbeat.interval.ms": arguments.heartbeat_ms,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    if arguments.login is not None:
        settings |= arguments.login.of_librdkafka
    if arguments.instance_id is not None:
        settings["group.instance.id"] = arguments.instance_id

    connector = ConsumerConnector(settings)
    connector.set_consumer_rebalance_listener(Listener(connector, progress))
    async with asyncio.TaskGroup() as tasks, connector:
        streams = await connector.create_message_streams(dict.fromkeys(arguments.topics, 1))
        for topic_streams in streams.values():
            for stream in topic_streams:
                tasks.create_task(read(stream, progress))
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL_S)
            await commit(connector, progress)


async def read(stream: MessageStream, progress: Progress) -> None:
    """Write all messages of a stream."""
    async for message in stream:
        place = (message.topic, message.partition, message.offset)
        say_message(*place, message.value)
        progress.add(*place)


async def commit(connector: ConsumerConnector, progress: Progress) -> None:
    """Commit what is written; keep it for the next time if that fails."""
    written = dict(progress.items())  # there will be more when it is committed
    if not written:
        return
    offsets = {TopicPartition(*at): OffsetAndMetadata(offset) for at, offset in written.items()}
    try:
        await connector.commit_offsets(offsets)
    except (ClientError, CommitFailed) as error:
        say_error(error)
    else:
        progress.end_commit(written)


if __name__ == "__main__":
    asyncio.run(consume(parse_arguments()))
