"""`kbroker reassign`: move partitions to other brokers.

Kafka's spelling works as it is: `--execute --reassignment-json-file plan.json --throttle 50000000`.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import click

from broker.kbroker.comma_lists import BrokerList
from broker.kbroker.open_cluster import open_cluster
from broker.kbroker.reassign.plan import (
    Plan,
    ReassignmentError,
    Status,
    build_current_plan,
    check_plan,
    format_plan,
    propose_plan,
    read_plan,
    read_topics_to_move,
)
from broker.kbroker.reassign.plan_file import read_plan_file
from broker.kbroker.reassign.progress import (
    build_status_items,
    read_state,
    report_status,
    without_adding,
)
from broker.kbroker.reassign.replica_places import (
    Places,
    cancel_moves,
    check_places,
    move_within_brokers,
    read_places,
)
from broker.kbroker.reassign.rows import (
    PLAN_COLUMNS,
    Item,
    build_plan_items,
    format_broker_ids,
    show_items,
)
from broker.kbroker.reassign.throttle import limit_directories, limit_speed, unlimit_speed
from clients.admin.descriptions import PartitionReassignment
from clients.admin.verdicts import Verdicts
from clients.command_line.finite_range import FiniteRange
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.output import (
    Failure,
    Listing,
    Target,
    exit_code,
    is_table,
    output_option,
    report,
    show,
    target_options,
)
from clients.command_line.printing import print_text, say
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

T = TypeVar("T")


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

    A plan is a file in the JSON of kafka-reassign-partitions.sh. The controller does the work. With
    --zookeeper, and no --bootstrap-server, on the command line the command writes
    /admin/reassign_partitions, as the tool did up to Kafka 2.3.
    """


PORTION = 100
"""Number of partitions in one request: what was begun is said behind each."""


# --- options --------------------------------------------------------------------------------------

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

plan_argument = click.argument("file", required=False, type=FILE)
plan_option = click.option(
    "--reassignment-json-file", "option_file", type=FILE, help="Kafka's spelling of FILE."
)
preserve_option = click.option(
    "--preserve-throttles", is_flag=True, help="Leave the throttles as they are."
)
watch_option = click.option(
    "--watch",
    type=FiniteRange(min=0.1),
    metavar="SEC",
    help="Report the progress every SEC seconds until nothing moves.",
)


def read_file(file: Path | None, option_file: Path | None, read: Callable[[str], T]) -> T:
    """Read the file, which one of two options names, as `read_plan_file` does."""
    if (file is None) == (option_file is None):
        raise click.UsageError("say which file: FILE, or Kafka's option for it")
    path = file or option_file
    assert path is not None
    return read_plan_file(path, read)


def read_plan_and_places(text: str) -> tuple[Plan, Places]:
    """Read a plan: the replicas of partitions, and the log directories of replicas."""
    return read_plan(text), read_places(text)


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
@click.option(
    "--topics-to-move-json-file", "option_file", type=FILE, help="Kafka's spelling of FILE."
)
@click.option("--broker-list", type=BrokerList(), required=True, help="Brokers to move them to.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore the brokers' racks.")
def generate(
    target: Target,
    output: str,
    file: Path | None,
    option_file: Path | None,
    broker_list: tuple[int, ...],
    disable_rack_aware: bool,
) -> None:
    """Propose a plan for the topics in FILE, and print the current one. Changes nothing."""
    names = read_file(file, option_file, read_topics_to_move)

    async def propose() -> tuple[Plan, Plan]:
        async with open_cluster(target, waits_for_dead=False) as cluster:
            racks = await cluster.list_brokers()
            topics = (await cluster.describe_topics(names)).values()
        if disable_rack_aware:
            # Brokers without a rack are all alike.
            racks = dict.fromkeys(racks)
        proposed = propose_plan(topics, broker_list, racks, random.randrange)
        return build_current_plan(topics), proposed

    current, proposed = asyncio.run(propose())

    # Other formats have one list, with current and proposed replicas side by side.
    if not is_table(output):
        show(Listing("reassignment", PLAN_COLUMNS, build_plan_items(proposed, current)), output)
        return
    print_text(f"Current partition replica assignment\n{format_plan(current)}\n")
    print_text(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


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
    help="Limit of each broker's copying; verify removes it at the end.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    "within_throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="Limit of each broker's moves between its log directories.",
)
@click.option("--additional", is_flag=True, help="Run even if other partitions are being moved.")
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
    """Begin to move the partitions in FILE; verify reports when they have arrived.

    The first output is the current plan. Keep it: if you execute it, the partitions move back. To
    change the throttle of a reassignment in progress, execute the same FILE again with --additional
    and another --throttle. If FILE names log directories, the replicas are moved to them as well.
    """
    plan, places = read_file(file, option_file, read_plan_and_places)
    asyncio.run(
        execute_plan(target, output, plan, places, throttle, within_throttle, additional, watch)
    )


async def execute_plan(
    target: Target,
    output: str,
    plan: Plan,
    places: Places,
    throttle: int | None,
    within_throttle: int | None,
    additional: bool,
    watch: float | None,
) -> None:
    """Check a plan, throttle, begin the moves, and watch if wanted; exit 1 at a failure."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(target))

        # Checks.
        current, moving = await read_state(cluster)
        if moving and not additional:
            raise ReassignmentError(
                "Cannot execute because there is an existing partition assignment. Use "
                "--additional to override this and create a new partition assignment in addition "
                "to the existing one."
            )
        check_plan(plan, current, await cluster.list_brokers())
        if places:
            brokers = {replica.broker for replica in places}
            check_places(places, await cluster.describe_log_dirs(brokers))

        # The current plan, for a rollback.
        if is_table(output):
            before = {partition: current[partition] for partition in plan}
            print_text(
                f"Current partition replica assignment\n\n{format_plan(before)}\n\n"
                "Save this to use as the --reassignment-json-file option during rollback"
            )

        interrupts = stack.enter_context(heeding_interrupts(several=len(plan) > PORTION))

        # Throttles first, so that nothing is copied without a limit.
        if throttle is not None:
            existing = {p: without_adding(current[p], moving.get(p)) for p in plan}
            await limit_speed(cluster, plan, existing, throttle)
        if places and within_throttle is not None:
            await limit_directories(cluster, places, within_throttle)

        # Directories before replicas: a broker without the replica creates it there.
        if places:
            # Responses do not matter here: a broker without the replica must refuse (KIP-113).
            await cluster.place_replicas(places)
        # In ZooKeeper one node has all of the plan.
        size = len(plan) if cluster.is_by_zookeeper else PORTION

        async def begin_next(portion: Sequence[TopicPartition]) -> Verdicts[TopicPartition]:
            verdicts = await cluster.reassign({partition: plan[partition] for partition in portion})
            for partition, error in verdicts.items():
                if error is None:
                    interrupts.say(f"begun: {partition}")
            return verdicts

        verdicts = await interrupts.in_portions(list(plan), begin_next, max(1, size))
        begun = {partition: plan[partition] for partition in plan if not verdicts.get(partition)}

        # Nothing moves, so nobody would run verify, which removes the limits.
        if throttle is not None and not begun:
            await unlimit_speed(cluster, plan)

        # The result, in Kafka's words.
        failures = [Failure.of(str(p), error) for p, error in verdicts.items() if error]
        if is_table(output):
            if begun:
                names = ",".join(map(str, sorted(begun)))
                say(f"Successfully started partition reassignments for {names}")
            report(failures)

        # Moves within brokers, of the partitions whose reassignment began.
        begun_places = {
            replica: path for replica, path in places.items() if replica.topic_partition in begun
        }
        if not interrupts.is_asked:
            failures += await move_within_brokers(cluster, output, begun_places, target.timeout_ms)

        # Follow the moves, and then remove only the limits that this command has set.
        if watch is not None and begun:
            preserve = throttle is None and within_throttle is None
            failures += await report_status(
                *(cluster, output, begun, begun_places, watch),
                preserve=preserve,
                interrupts=interrupts,
                before=failures,
            )
        elif not is_table(output):
            listing = Listing(
                "reassignment", PLAN_COLUMNS, build_plan_items(begun, current), failures
            )
            show(listing, output)
    if failures:
        raise click.exceptions.Exit(exit_code(failures))


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
    """Report whether the partitions in FILE have arrived; if all have, remove the throttles.

    Exit code 1 if a partition has not arrived and is not being moved.
    """
    plan, places = read_file(file, option_file, read_plan_and_places)

    async def report_plan() -> list[Failure]:
        async with open_cluster(target) as cluster:
            with heeding_interrupts() as interrupts:
                return await report_status(
                    *(cluster, output, plan, places, watch),
                    preserve=preserve_throttles,
                    interrupts=interrupts,
                )

    if failures := asyncio.run(report_plan()):
        raise click.exceptions.Exit(exit_code(failures))


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
    """Stop moving the partitions in FILE; their replicas stay where they were."""
    plan, places = read_file(file, option_file, read_plan_and_places)

    async def cancel_plan() -> dict[TopicPartition, ApiError | None]:
        async with open_cluster(target) as cluster:
            # Moves between brokers, then those between directories.
            verdicts = await cluster.cancel_reassignments(plan)
            await cancel_moves(cluster, places)
            if not preserve_throttles:
                # A plan may name topics that were deleted since.
                topics = (await cluster.describe_topics()).keys()
                existing = {p: replicas for p, replicas in plan.items() if p.topic in topics}
                await unlimit_speed(cluster, existing)
        return verdicts

    verdicts = asyncio.run(cancel_plan())

    # A partition that is not being moved is no failure: that is what was wanted.
    cancelled = sorted(partition for partition, error in verdicts.items() if error is None)
    failures = [
        Failure.of(str(partition), error)
        for partition, error in verdicts.items()
        if error is not None and error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    ]
    items = [{"topic": topic, "partition": partition_id} for topic, partition_id in cancelled]

    if is_table(output):
        if cancelled:
            names = ",".join(map(str, cancelled))
            say(f"Successfully cancelled partition reassignments for: {names}")
        else:
            say("None of the specified partition reassignments are active.")
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
    """List all partitions that are being moved, and their progress."""

    async def collect_items() -> list[Item]:
        async with open_cluster(target, waits_for_dead=False) as cluster:
            moving = await cluster.list_reassignments()
            plan = {
                partition: _find_target(reassignment) for partition, reassignment in moving.items()
            }
            return await build_status_items(cluster, plan, {})

    # A reassignment may have ended since the list was read.
    items = [item for item in asyncio.run(collect_items()) if item["state"] is Status.IN_PROGRESS]
    if not is_table(output):
        show_items(items, (), output)
    elif not items:
        say("No partition reassignments found.")
    else:
        say("Current partition reassignments:")
        for item in items:
            say(_format_reassignment(item))


def _format_reassignment(item: Item) -> str:
    """Return the line of kafka-reassign-partitions.sh --list for one partition."""
    name = f"{item['topic']}-{item['partition']}"
    line = f"{name}: replicas: {format_broker_ids(item['replicas'])}."
    if item["adding"]:
        line += f" adding: {format_broker_ids(item['adding'])}."
    if item["removing"]:
        line += f" removing: {format_broker_ids(item['removing'])}."
    return line


def _find_target(reassignment: PartitionReassignment) -> tuple[int, ...]:
    """Return the replicas that a reassignment leads to."""
    # Until the end the replicas are the old and the new ones (KIP-455).
    return tuple(broker for broker in reassignment.replicas if broker not in reassignment.removing)
