"""`kbroker shutdown`: have a broker's partitions led by others, before it is stopped."""

import asyncio

import click

from clients.output import Column, Failure, Listing, Target, output_option, show, target_options
from clients.sessions import connected
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
@click.option("--broker", "option_broker", type=click.IntRange(min=0), help="Kafka's way for ID.")
@click.option(
    "--retries",
    "--num.retries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How often to try again while it leads something still.",
)
@click.option(
    "--retry-interval",
    "--retry.interval.ms",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="MS",
    help="How long to wait before that.",
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

    This does not end its process: whoever runs it does (SIGTERM; a broker told so does all this by
    itself). Until it has been started again it leads nothing. Exit code 1 if it leads partitions
    still that nobody else can lead; they are named.
    """
    if (broker is None) == (option_broker is None):
        raise click.UsageError("say which broker: ID")
    broker_id = option_broker if broker is None else broker
    assert broker_id is not None
    remaining = asyncio.run(moved(target, broker_id, retries, retry_interval))
    failures = [
        Failure(
            str(each), "LEADER_NOT_AVAILABLE", f"led by broker {broker_id} still: nobody else can"
        )
        for each in remaining
    ]
    if output == "table":
        if not remaining:
            click.echo(
                f"Controlled shutdown of broker {broker_id}: it leads no partition that others "
                "keep too. Its process runs on: stop it now (SIGTERM)."
            )
        show(Listing("shutdown", COLUMNS, [], failures), output)
    else:
        items = [{"topic": each.topic, "partition": each.partition} for each in remaining]
        show(Listing("shutdown", COLUMNS, items, failures), output)


async def moved(
    target: Target, broker: int, retries: int, retry_interval_ms: int
) -> tuple[TopicPartition, ...]:
    """What the broker leads still, after so many tries more."""
    async with connected(target) as sessions:
        while True:
            remaining = await sessions.admin.controlled_shutdown(broker)
            if not remaining or retries == 0:
                return remaining
            retries -= 1
            click.echo(f"{len(remaining)} partitions remain; {retries} tries left", err=True)
            await asyncio.sleep(retry_interval_ms / 1000)
