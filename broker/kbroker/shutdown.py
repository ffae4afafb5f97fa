"""`kbroker shutdown`: move the leaders off a broker before it is stopped."""

import asyncio

import click

from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    is_table,
    output_option,
    show,
    target_options,
)
from clients.command_line.printing import say
from clients.command_line.sessions import connected
from protocol.topic_partition import TopicPartition

COLUMNS = (Column("TOPIC", 15), Column("PARTITION", 10))


@click.command(
    "shutdown",
    epilog="""\b
Example:
  kbroker shutdown 1 && kill "$(cat kbroker-data/broker-1.pid)\"""",
)
@target_options
@output_option
@click.argument("broker", metavar="ID", required=False, type=click.IntRange(min=0))
@click.option(
    "--broker", "option_broker", type=click.IntRange(min=0), help="Kafka's spelling of ID."
)
@click.option(
    "--retries",
    "--num.retries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of further attempts while the broker still leads partitions.",
)
@click.option(
    "--retry-interval",
    "--retry.interval.ms",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="MS",
    help="Pause before each further attempt.",
)
def command(
    target: Target,
    output: str,
    broker: int | None,
    option_broker: int | None,
    retries: int,
    retry_interval: int,
) -> None:
    """Have the controller move every leader off broker ID, as the tool of Kafka 0.8 did.

    The broker's process goes on: stop it yourself with SIGTERM. (A broker that gets SIGTERM moves
    its leaders by itself.) The broker leads nothing until it is started again. Exit code 1 if it
    still leads partitions that no other broker can lead; they are listed.
    """
    # The broker's id, in one of two spellings.
    if (broker is None) == (option_broker is None):
        raise click.UsageError("say which broker: ID")
    broker_id = option_broker if broker is None else broker
    assert broker_id is not None

    remaining = asyncio.run(move_leaders(target, broker_id, retries, retry_interval))
    failures = [
        Failure(
            str(topic_partition),
            "LEADER_NOT_AVAILABLE",
            f"still led by broker {broker_id}: no other broker can lead it",
        )
        for topic_partition in remaining
    ]

    # A sentence for people; data formats list the partitions that remain.
    if is_table(output):
        if not remaining:
            say(
                f"Controlled shutdown of broker {broker_id}: it leads no partition that has "
                "other replicas. Its process still runs: stop it now (SIGTERM)."
            )
        show(Listing("shutdown", COLUMNS, [], failures), output)
    else:
        items = [{"topic": name, "partition": partition_id} for name, partition_id in remaining]
        show(Listing("shutdown", COLUMNS, items, failures), output)


async def move_leaders(
    target: Target, broker: int, retries: int, retry_interval_ms: int
) -> tuple[TopicPartition, ...]:
    """Move the leaders off a broker in at most 1 + `retries` attempts; return what it still leads.

    Partitions without another replica are not returned: no broker can take them over.
    """
    async with connected(target, asks_brokers=True) as sessions:
        while True:
            # The controller moves all that it can, and returns the rest.
            remaining = await sessions.admin.controlled_shutdown(broker)
            if not remaining or retries == 0:
                return remaining

            retries -= 1
            say(f"{len(remaining)} partitions remain; {retries} attempts left", err=True)
            await asyncio.sleep(retry_interval_ms / 1000)
