"""`kbroker reassign`: move partitions to other brokers.

Kafka's spelling works as it is: `--execute --reassignment-json-file plan.json --throttle 50000000`.
"""

import asyncio
import random
from pathlib import Path

import click

from broker.kbroker.cluster_access import cluster_access
from broker.kbroker.comma_lists import BrokerList
from broker.kbroker.reassign.plan import (
    Plan,
    ReassignmentError,
    Status,
    check_plan,
    current_plan,
    plan_text,
    proposed_plan,
    read_plan,
    read_topics_to_move,
)
from broker.kbroker.reassign.progress import looked, status_items, verified, without_coming
from broker.kbroker.reassign.replica_places import (
    Places,
    check_places,
    moved_within,
    read_places,
    stay,
)
from broker.kbroker.reassign.rows import PLAN_COLUMNS, Item, broker_ids, plan_items, show_items
from broker.kbroker.reassign.throttle import limit_directories, limit_speed, unlimit_speed
from clients.admin.descriptions import PartitionReassignment
from clients.kafka_spelling import ActionGroup
from clients.output import (
    Failure,
    Listing,
    Target,
    output_option,
    report,
    show,
    target_options,
)
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition


@click.group(
    "reassign",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker reassign generate topics.json --broker-list 1,2,3
  kbroker reassign execute plan.json --throttle 50000000 --watch 2
  kbroker reassign verify plan.json""",
)
def command() -> None:
    """Move partitions to other brokers, while they are used.

    A plan is the JSON of kafka-reassign-partitions.sh. Asks the controller; with --zookeeper, and
    no --bootstrap-server, on the command line it writes /admin/reassign_partitions, as the tool
    did up to Kafka 2.3.
    """


# --- options --------------------------------------------------------------------------------------

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

plan_argument = click.argument("file", required=False, type=FILE)
plan_option = click.option(
    "--reassignment-json-file", "option_file", type=FILE, help="Kafka's way to say FILE."
)
preserve_option = click.option(
    "--preserve-throttles", is_flag=True, help="Leave the limits of speed as they are."
)
watch_option = click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    metavar="SEC",
    help="Look every so often, and say how far it is, until nothing moves any more.",
)


def text_of(file: Path | None, option_file: Path | None) -> str:
    """The file's text, said either way. Raises UsageError, OSError."""
    if (file is None) == (option_file is None):
        raise click.UsageError("say which file: FILE, or Kafka's option for it")
    chosen = file or option_file
    assert chosen is not None
    try:
        return chosen.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{chosen}: not UTF-8: {error}") from None


# --- generate -------------------------------------------------------------------------------------


@command.command(
    "generate",
    epilog="""\b
Example:
  echo '{"version":1,"topics":[{"topic":"flights"}]}' > topics.json
  kbroker reassign generate topics.json --broker-list 1,2,3""",
)
@target_options
@output_option
@plan_argument
@click.option("--topics-to-move-json-file", "option_file", type=FILE, help="Kafka's way for FILE.")
@click.option("--broker-list", type=BrokerList(), required=True, help="Where they shall go.")
@click.option("--disable-rack-aware", is_flag=True, help="Don't look at racks.")
def generate(
    target: Target,
    output: str,
    file: Path | None,
    option_file: Path | None,
    broker_list: tuple[int, ...],
    disable_rack_aware: bool,
) -> None:
    """Propose a plan for the topics in FILE, and show where they are now. Changes nothing."""
    topics = read_topics_to_move(text_of(file, option_file))

    async def ask() -> tuple[Plan, Plan]:
        async with cluster_access(target) as cluster:
            racks = await cluster.list_brokers()
            found = (await cluster.describe_topics(topics)).values()
        if disable_rack_aware:
            racks = dict.fromkeys(racks)
        return current_plan(found), proposed_plan(found, broker_list, racks, random.randrange)

    current, proposed = asyncio.run(ask())
    if output != "table":
        show(Listing("reassignment", PLAN_COLUMNS, plan_items(proposed, current)), output)
        return
    click.echo(f"Current partition replica assignment\n{plan_text(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{plan_text(proposed)}")


# --- execute --------------------------------------------------------------------------------------


@command.command(
    "execute",
    epilog="""\b
Example:
  kbroker reassign execute plan.json --throttle 50000000 --watch 2""",
)
@target_options
@output_option
@plan_argument
@plan_option
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="How fast each broker may copy; verify takes the limit away again.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    "within_throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="How fast each broker may move replicas between its log directories.",
)
@click.option("--additional", is_flag=True, help="Though other partitions are on the move.")
@watch_option
def execute(
    target: Target,
    output: str,
    file: Path | None,
    option_file: Path | None,
    throttle: int | None,
    within_throttle: int | None,
    additional: bool,
    watch: float | None,
) -> None:
    """Begin to move the partitions in FILE; verify says when they have arrived.

    What it prints first is the way back: keep it. To change the limit of speed of what is under
    way, execute the same FILE again, --additional, with another --throttle. Replicas for which FILE
    has a log directory of their broker are moved there as well.
    """
    text = text_of(file, option_file)
    plan, places = read_plan(text), read_places(text)
    asyncio.run(
        executed(target, output, plan, places, throttle, within_throttle, additional, watch)
    )


async def executed(
    target: Target,
    output: str,
    plan: Plan,
    places: Places,
    throttle: int | None,
    within_throttle: int | None,
    additional: bool,
    watch: float | None,
) -> None:
    """Check, throttle, begin, and watch if that is wanted; exit 1 if anything was refused."""
    async with cluster_access(target) as cluster:
        current, moving = await looked(cluster)
        if moving and not additional:
            raise ReassignmentError(
                "Cannot execute because there is an existing partition assignment. Use "
                "--additional to override this and create a new partition assignment in addition "
                "to the existing one."
            )
        check_plan(plan, current, await cluster.list_brokers())
        if places:
            check_places(places, await cluster.describe_log_dirs(each.broker for each in places))
        if output == "table":
            before = {each: current[each] for each in plan}
            click.echo(
                f"Current partition replica assignment\n\n{plan_text(before)}\n\n"
                "Save this to use as the --reassignment-json-file option during rollback"
            )
        if throttle is not None:
            settled = {p: without_coming(current[p], moving.get(p)) for p in plan}
            await limit_speed(cluster, plan, settled, throttle)
        if places and within_throttle is not None:
            await limit_directories(cluster, places, within_throttle)
        if places:  # brokers that are to get a replica remember it
            await cluster.place_replicas(places)
        verdicts = await cluster.reassign(plan)
        begun = {each: plan[each] for each in plan if verdicts.get(each) is None}
        if throttle is not None and not begun:
            await unlimit_speed(cluster, plan)
        failures = [Failure.of(str(p), error) for p, error in verdicts.items() if error]
        if output == "table":
            if begun:
                names = ",".join(map(str, sorted(begun)))
                click.echo(f"Successfully started partition reassignments for {names}")
            report(failures)
        begun_places = {e: path for e, path in places.items() if e.topic_partition in begun}
        failures += await moved_within(cluster, output, begun_places, target.timeout_ms)
        if watch is not None and begun:
            preserve = throttle is None and within_throttle is None
            failures += await verified(
                cluster, output, begun, begun_places, watch, preserve=preserve
            )
        elif output != "table":
            listing = Listing("reassignment", PLAN_COLUMNS, plan_items(begun, current), failures)
            show(listing, output)
    if failures:
        raise click.exceptions.Exit(1)


# --- verify ---------------------------------------------------------------------------------------


@command.command(
    "verify",
    epilog="""\b
Example:
  kbroker reassign verify plan.json""",
)
@target_options
@output_option
@plan_argument
@plan_option
@preserve_option
@watch_option
def verify(
    target: Target,
    output: str,
    file: Path | None,
    option_file: Path | None,
    preserve_throttles: bool,
    watch: float | None,
) -> None:
    """Whether the partitions in FILE have arrived; if all have, limits of speed are taken away.

    Exit code 1 if one is neither there nor on its way.
    """
    text = text_of(file, option_file)
    plan, places = read_plan(text), read_places(text)

    async def ask() -> list[Failure]:
        async with cluster_access(target) as cluster:
            return await verified(cluster, output, plan, places, watch, preserve=preserve_throttles)

    if asyncio.run(ask()):
        raise click.exceptions.Exit(1)


# --- cancel and list ------------------------------------------------------------------------------


@command.command(
    "cancel",
    epilog="""\b
Example:
  kbroker reassign cancel plan.json""",
)
@target_options
@output_option
@plan_argument
@plan_option
@preserve_option
def cancel(
    target: Target,
    output: str,
    file: Path | None,
    option_file: Path | None,
    preserve_throttles: bool,
) -> None:
    """Stop moving the partitions in FILE, and leave them where they were."""
    text = text_of(file, option_file)
    plan, places = read_plan(text), read_places(text)

    async def ask() -> dict[TopicPartition, ApiError | None]:
        async with cluster_access(target) as cluster:
            verdicts = await cluster.cancel_reassignments(plan)
            await stay(cluster, places)
            if not preserve_throttles:
                known = (await cluster.describe_topics()).keys()
                await unlimit_speed(cluster, {p: to for p, to in plan.items() if p.topic in known})
        return verdicts

    verdicts = asyncio.run(ask())
    stopped = sorted(each for each, error in verdicts.items() if error is None)
    failures = [
        Failure.of(str(partition), error)
        for partition, error in verdicts.items()
        if error is not None and error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    ]
    items = [{"topic": each.topic, "partition": each.partition} for each in stopped]
    if output == "table":
        names = ",".join(map(str, stopped))
        click.echo(
            f"Successfully cancelled partition reassignments for: {names}"
            if stopped
            else "None of the specified partition reassignments are active."
        )
        items = []
    show(Listing("reassignment", PLAN_COLUMNS[:2], items, failures), output)


@command.command(
    "list",
    epilog="""\b
Example:
  kbroker reassign list""",
)
@target_options
@output_option
def list_reassignments(target: Target, output: str) -> None:
    """All partitions that are on the move, and how far they are."""

    async def ask() -> list[Item]:
        async with cluster_access(target) as cluster:
            moving = await cluster.list_reassignments()
            plan = {each: _target(how) for each, how in moving.items()}
            return await status_items(cluster, plan, {})

    items = [item for item in asyncio.run(ask()) if item["state"] is Status.IN_PROGRESS]
    if output != "table":
        show_items(items, (), output)
    elif not items:
        click.echo("No partition reassignments found.")
    else:
        click.echo("Current partition reassignments:")
        for item in items:
            line = f"{item['topic']}-{item['partition']}: replicas: {broker_ids(item['replicas'])}."
            line += f" adding: {broker_ids(item['adding'])}." if item["adding"] else ""
            line += f" removing: {broker_ids(item['removing'])}." if item["removing"] else ""
            click.echo(line)


def _target(how: PartitionReassignment) -> tuple[int, ...]:
    return tuple(each for each in how.replicas if each not in how.removing)
