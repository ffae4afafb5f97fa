"""A member of a group by librdkafka, which confluent-kafka is made of."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.drivers.member import (
    POLL_S,
    Progress,
    Stop,
    parse_arguments,
    say_changed,
    say_error,
    say_message,
)

AT_ONCE = 500


def main() -> None:
    """Consume until SIGTERM."""
    arguments, progress, stop = parse_arguments(), Progress(), Stop.on_sigterm()
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "client.id": arguments.client_id,
        "partition.assignment.strategy": ",".join(arguments.strategies),
        "session.timeout.ms": arguments.session_timeout_ms,
        "heartbeat.interval.ms": arguments.heartbeat_ms,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "error_cb": say_error,
    }
    if arguments.login is not None:
        settings |= arguments.login.of_librdkafka
    if arguments.instance_id is not None:
        settings["group.instance.id"] = arguments.instance_id
    consumer = Consumer(settings)

    def revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit(consumer, progress)
        progress.forget(partitions)
        say_changed("revoked", partitions)

    def lose(_: Consumer, partitions: list[TopicPartition]) -> None:
        progress.forget(partitions)
        say_changed("lost", partitions)

    consumer.subscribe(
        arguments.topics,
        on_assign=lambda _, partitions: say_changed("assigned", partitions),
        on_revoke=revoke,
        on_lost=lose,
    )
    try:
        while not stop.is_wanted:
            for message in consumer.consume(AT_ONCE, POLL_S):
                if message.error():
                    say_error(message.error())
                    continue
                place = (message.topic(), message.partition(), message.offset())
                say_message(*place, message.value())
                progress.add(*place)
            commit(consumer, progress)
    finally:
        consumer.close()


def commit(consumer: Consumer, progress: Progress) -> None:
    """Commit what is written; keep it for the next time if that fails."""
    if not progress.offsets:
        return
    offsets = [TopicPartition(*partition, offset) for partition, offset in progress.items()]
    try:
        committed = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        say_error(error)
        return

    failed = [each for each in committed if each.error]
    if failed:
        say_error(failed[0].error)
    else:
        progress.end_commit()


if __name__ == "__main__":
    main()
