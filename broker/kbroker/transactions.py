"""`kbroker transactions`: see transactions, find those that hang, and abort these (KIP-664).

Names of sub-commands, options and columns are those of kafka-transactions.sh.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import click

from clients.admin import (
    Admin,
    HangingTransactions,
    OpenTransaction,
    ProducerState,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    find_hanging_transactions,
)
from clients.admin.hanging_transactions import find_last_transactions
from clients.cluster_view import BrokerEndpoint
from clients.command_line.command_group import CommandFailed
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.missing_rights import find_hidden_topics, find_hidden_transactions
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
from clients.command_line.printing import plain, say
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import connected
from clients.errors import KgroupError, UnsupportedApi
from groups.transactions.state import STATE_NAMES
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

T = TypeVar("T")
Item = dict[str, Any]

MINUTE_MS = 60_000
MAX_EPOCH = 2**15 - 1


def _or_none(value: object) -> str:
    """Return the text of a cell, as Kafka's tool prints what is not there."""
    return "None" if value is None else plain(value)


def _minutes(duration_ms: int) -> str:
    return str(duration_ms // MINUTE_MS)


LISTING_COLUMNS = (
    Column("TransactionalId", key="transactional_id"),
    Column("Coordinator", key="coordinator"),
    Column("ProducerId", key="producer_id"),
    Column("TransactionState", key="transaction_state"),
)
DESCRIPTION_COLUMNS = (
    Column("CoordinatorId", key="coordinator_id"),
    Column("TransactionalId", key="transactional_id"),
    Column("ProducerId", key="producer_id"),
    Column("ProducerEpoch", key="producer_epoch"),
    Column("TransactionState", key="transaction_state"),
    Column("TransactionTimeoutMs", key="transaction_timeout_ms"),
    Column("CurrentTransactionStartTimeMs", key="current_transaction_start_time_ms", text=_or_none),
    Column("TransactionDurationMs", key="transaction_duration_ms", text=_or_none),
    Column("TopicPartitions", key="topic_partitions"),
)
PRODUCER_COLUMNS = (
    Column("ProducerId", key="producer_id"),
    Column("ProducerEpoch", key="producer_epoch"),
    Column("LatestCoordinatorEpoch", key="latest_coordinator_epoch"),
    Column("LastSequence", key="last_sequence"),
    Column("LastTimestamp", key="last_timestamp_ms"),
    Column("CurrentTransactionStartOffset", key="current_transaction_start_offset", text=_or_none),
)
HANGING_COLUMNS = (
    Column("Topic", key="topic"),
    Column("Partition", key="partition"),
    Column("ProducerId", key="producer_id"),
    Column("ProducerEpoch", key="producer_epoch"),
    Column("CoordinatorEpoch", key="coordinator_epoch"),
    Column("StartOffset", key="start_offset"),
    Column("LastTimestamp", key="last_timestamp_ms"),
    Column("Duration(min)", key="duration_ms", text=_minutes),
    Column("TransactionalId", key="transactional_id", wide=True),
    Column("TransactionState", key="transaction_state", wide=True),
)
ABORTED_COLUMNS = (
    Column("Topic", key="topic"),
    Column("Partition", key="partition"),
    Column("ProducerId", key="producer_id"),
    Column("ProducerEpoch", key="producer_epoch"),
    Column("CoordinatorEpoch", key="coordinator_epoch"),
)


@click.group(
    "transactions",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker transactions list --state Ongoing
  kbroker transactions describe billing-1
  kbroker transactions find-hanging --broker-id 0
  kbroker transactions abort --topic payments --partition 3 --start-offset 1840""",
)
def command() -> None:
    """See transactions, find those that hang, and abort these.

    A transaction hangs where no coordinator will ever end it. Until it is aborted, readers of
    committed data stop before it, and so does the cleaner.
    """


# --- options


def _required_partition(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that name one partition, as Kafka's tool has them."""
    number = click.option(
        "--partition", "partition_id", type=click.IntRange(min=0), required=True, help="Its number."
    )
    topic = click.option("--topic", required=True, metavar="NAME", help="The partition's topic.")
    return topic(number(command))


# --- list


@command.command(
    "list",
    epilog="""\b
Examples:
  kbroker transactions list
  kbroker transactions list --state Ongoing --duration-filter 60000 -o json""",
)
@target_options
@output_option
@click.option(
    "--state",
    "states",
    type=click.Choice(STATE_NAMES, case_sensitive=False),
    multiple=True,
    help="Only ids in this state; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only the id that has this producer; may be repeated.",
)
@click.option(
    "--duration-filter",
    type=int,
    default=-1,
    metavar="MS",
    help="Only ids whose last transaction began longer ago (Kafka 3.8 and later).",
)
def list_transactions(
    target: Target,
    output: str,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int,
) -> None:
    """List the transactional ids of all coordinators."""
    failures: list[Failure] = []

    async def find() -> tuple[list[TransactionListing], list[Failure]]:
        min_duration_ms = None if duration_filter < 0 else duration_filter
        async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
            results = await sessions.admin.transactions_of_each_broker(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
            )
            listings = join_listings(results, failures)
            return listings, await find_hidden_transactions(sessions.admin)

    listings, hidden = asyncio.run(find())
    items = [
        {
            "transactional_id": listing.transactional_id,
            "coordinator": listing.coordinator.node_id,
            "producer_id": listing.producer_id,
            "transaction_state": listing.state,
        }
        for listing in listings
    ]
    # Who sees some ids has a list of these; who sees none should know why.
    errors = failures if items else [*failures, *hidden]
    notes = [f"note: {failure.message}" for failure in hidden]
    show(Listing("transactions", LISTING_COLUMNS, items, errors, summaries=notes), output)


def join_listings(
    results: Mapping[BrokerEndpoint, list[TransactionListing] | KgroupError],
    failures: list[Failure],
) -> list[TransactionListing]:
    """Return the ids of all coordinators, sorted. One that did not tell its ids is a failure."""
    listings: list[TransactionListing] = []
    for broker, result in results.items():
        if isinstance(result, KgroupError):
            failures.append(Failure.of(f"broker {broker.node_id}", result))
        else:
            listings += result
    return sorted(listings, key=lambda listing: listing.transactional_id)


# --- describe


@command.command(
    "describe",
    epilog="""\b
Examples:
  kbroker transactions describe billing-1
  kbroker transactions describe --transactional-id billing-1 -o json""",
)
@target_options
@output_option
@click.argument("transactional_ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--transactional-id", "more_ids", multiple=True, metavar="ID", help="An id, as Kafka spells it."
)
def describe(
    target: Target, output: str, transactional_ids: tuple[str, ...], more_ids: tuple[str, ...]
) -> None:
    """Describe the last transaction of each ID.

    TopicPartitions are those that still get a marker: the ones written to in an open transaction,
    the rest of them while it is being ended, none afterwards.
    """
    names = list(dict.fromkeys((*transactional_ids, *more_ids)))
    if not names:
        raise click.UsageError("say which: ID, or --transactional-id ID")

    async def find() -> dict[str, TransactionDescription | KgroupError]:
        async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
            return await sessions.admin.describe_each_transaction(names)

    results = asyncio.run(find())
    now_ms = _now_ms()
    items = [
        _description_item(name, result, now_ms)
        for name, result in results.items()
        if isinstance(result, TransactionDescription)
    ]
    failures = [
        Failure.of(name, result)
        for name, result in results.items()
        if isinstance(result, KgroupError)
    ]
    show(Listing("transaction", DESCRIPTION_COLUMNS, items, failures), output)


def _description_item(name: str, transaction: TransactionDescription, now_ms: int) -> Item:
    start_ms = transaction.start_ms
    return {
        "coordinator_id": transaction.coordinator.node_id,
        "transactional_id": name,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_state": transaction.state,
        "transaction_timeout_ms": transaction.timeout_ms,
        "current_transaction_start_time_ms": start_ms,
        "transaction_duration_ms": None if start_ms is None else now_ms - start_ms,
        "topic_partitions": ",".join(map(str, sorted(transaction.partitions))),
    }


# --- describe-producers


@command.command(
    "describe-producers",
    epilog="""\b
Examples:
  kbroker transactions describe-producers --topic payments --partition 3
  kbroker transactions describe-producers --topic payments --partition 3 --broker-id 2""",
)
@target_options
@output_option
@click.option("--broker-id", type=int, help="Ask this broker's replica.  [default: the leader]")
@_required_partition
def describe_producers(
    target: Target, output: str, broker_id: int | None, topic: str, partition_id: int
) -> None:
    """Describe the producers of a partition.

    These are the ones that its leader, or the broker that is named, has noted: those that number
    their batches.
    """
    partition = TopicPartition(topic, partition_id)

    async def find() -> Sequence[ProducerState]:
        async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
            producers = await sessions.admin.describe_producers([partition], broker=broker_id)
            return producers[partition]

    show(Listing("producers", PRODUCER_COLUMNS, list(map(_item, asyncio.run(find())))), output)


def _item(producer: ProducerState) -> Item:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "latest_coordinator_epoch": _epoch_or_minus_one(producer),
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "current_transaction_start_offset": producer.transaction_start_offset,
    }


def _epoch_or_minus_one(producer: ProducerState) -> int:
    return -1 if producer.coordinator_epoch is None else producer.coordinator_epoch


# --- find-hanging


@command.command(
    "find-hanging",
    epilog="""\b
Examples:
  kbroker transactions find-hanging
  kbroker transactions find-hanging --broker-id 0
  kbroker transactions find-hanging --topic payments --max-transaction-timeout 60 -o json""",
)
@target_options
@output_option
@click.option("--broker-id", type=int, help="Only the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    "max_timeout_min",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms: what was written to later is not looked at.",
)
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option(
    "--partition", "partition_id", type=click.IntRange(min=0), help="Only this partition of it."
)
def find_hanging(
    target: Target,
    output: str,
    broker_id: int | None,
    max_timeout_min: int,
    topic: str | None,
    partition_id: int | None,
) -> None:
    """Find transactions that nobody will end.

    They are open on a partition, and no coordinator has them in a transaction. Without options all
    partitions are searched. -o wide adds the transactional id that has the producer, and the state
    of its last transaction.
    """
    if partition_id is not None and topic is None:
        raise click.UsageError("--partition needs the --topic")
    scope = SearchScope(topic, partition_id, broker_id)
    found, hidden = asyncio.run(_find_hanging(target, scope, max_timeout_min * MINUTE_MS))

    now_ms = _now_ms()
    items = [_hanging_item(transaction, now_ms) for transaction in found.transactions]
    failures = hidden + [
        Failure.of(str(partition), error) for partition, error in sorted(found.failures.items())
    ]
    show(Listing("hanging-transactions", HANGING_COLUMNS, items, failures), output)


@frozen
class SearchScope:
    """The partitions to search: of one topic, with a replica on one broker, or all."""

    topic: str | None
    partition_id: int | None
    broker_id: int | None

    def choose(self, topics: Collection[TopicDescription]) -> list[TopicPartition]:
        """Return the partitions. Raises ApiError for one that does not exist."""
        chosen = [
            TopicPartition(topic.name, partition_id)
            for topic in topics
            for partition_id, partition in topic.partitions.items()
            if self.partition_id in (None, partition_id)
            and (self.broker_id is None or self.broker_id in partition.replicas)
        ]
        if not chosen and self.partition_id is not None:
            where = "" if self.broker_id is None else f" on broker {self.broker_id}"
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.partition_id}{where}"
            )
        return sorted(chosen)


async def _check_broker(admin: Admin, broker_id: int) -> None:
    """Raise CommandFailed if there is no such broker: it has nothing that could be found."""
    brokers = [broker.node_id for broker in (await admin.describe_cluster()).brokers]
    if broker_id not in brokers:
        there = ", ".join(map(str, brokers))
        raise CommandFailed(f"there is no broker {broker_id}; brokers: {there}")


@showing_progress("asking the leaders for their producers")
async def _find_hanging(
    target: Target, scope: SearchScope, max_timeout_ms: int
) -> tuple[HangingTransactions, list[Failure]]:
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        admin = sessions.admin
        topics = await admin.describe_topics(None if scope.topic is None else [scope.topic])
        partitions = scope.choose(topics.values())
        if scope.broker_id is not None and not partitions:
            await _check_broker(admin, scope.broker_id)
        found = await find_hanging_transactions(
            admin,
            partitions,
            now_ms=_now_ms(),
            max_timeout_ms=max_timeout_ms,
            broker=scope.broker_id,
        )
        return found, await find_hidden_topics(admin) if scope.topic is None else []


def _hanging_item(transaction: OpenTransaction, now_ms: int) -> Item:
    producer, last = transaction.producer, transaction.last
    description = None if last is None else last.description
    return {
        "topic": transaction.partition.topic,
        "partition": transaction.partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": _epoch_or_minus_one(producer),
        "start_offset": producer.transaction_start_offset,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "duration_ms": now_ms - producer.last_timestamp_ms,
        "transactional_id": None if last is None else last.transactional_id,
        "transaction_state": (
            description.state if isinstance(description, TransactionDescription) else None
        ),
    }


# --- abort


@command.command(
    "abort",
    epilog="""\b
Examples:
  kbroker transactions abort --topic payments --partition 3 --start-offset 1840
  kbroker transactions abort --topic payments --partition 3 --producer-id 42 --producer-epoch 7 --coordinator-epoch -1""",  # noqa: E501
)
@target_options
@output_option
@_required_partition
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="The StartOffset that find-hanging shows (Kafka 2.8 and later).",
)
@click.option(
    "--producer-id", type=click.IntRange(min=0), help="In place of the offset, with both epochs."
)
@click.option("--producer-epoch", type=click.IntRange(0, MAX_EPOCH), help="With --producer-id.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(min=-1),
    help="With --producer-id; -1 if the partition has no marker of the producer.",
)
@click.option(
    "--force", is_flag=True, help="Abort also what its coordinator will end. This tears it."
)
def abort(
    target: Target,
    output: str,
    topic: str,
    partition_id: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    force: bool,
) -> None:
    """Abort a transaction on one partition.

    A transaction that its coordinator will end is refused, unless --force is given: aborted on
    one partition, it would be committed on the others. Brokers before 3.0 do not say what their
    coordinators will do, so there it is not checked.
    """
    partition = TopicPartition(topic, partition_id)
    named = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (producer_id is None):
        raise click.UsageError(
            "say which: --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
        )
    if start_offset is None and None in named:
        raise click.UsageError("--producer-id needs --producer-epoch and --coordinator-epoch")
    if start_offset is not None and named != (None, None, None):
        raise click.UsageError("--start-offset finds the epochs itself: leave them out")

    async def run() -> Item:
        async with connected(target, asks_brokers=True) as sessions:
            return await _abort(sessions.admin, partition, start_offset, named, force)

    item = asyncio.run(run())
    if is_table(output):
        say(f"Aborted the transaction of producer {item['producer_id']} on {partition}.")
    else:
        show(Listing("aborted-transactions", ABORTED_COLUMNS, [item]), output)


async def _abort(
    admin: Admin,
    partition: TopicPartition,
    start_offset: int | None,
    named: tuple[int | None, int | None, int | None],
    force: bool,
) -> Item:
    producer_id, producer_epoch, coordinator_epoch = named
    if start_offset is not None:
        producer = await _find_open(admin, partition, start_offset)
        producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
        coordinator_epoch = producer.coordinator_epoch

    assert producer_id is not None
    assert producer_epoch is not None
    # -1 stands for none, as in the tables.
    coordinator_epoch = max(coordinator_epoch or 0, 0)
    if not force:
        await _refuse_to_tear(admin, partition, producer_id)
    await admin.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "coordinator_epoch": coordinator_epoch,
    }


async def _find_open(admin: Admin, partition: TopicPartition, start_offset: int) -> ProducerState:
    """Return the producer whose transaction begins at an offset. Raises CommandFailed."""
    producers = (await admin.describe_producers([partition]))[partition]
    for producer in producers:
        if producer.transaction_start_offset == start_offset:
            return producer

    starts = [
        p.transaction_start_offset for p in producers if p.transaction_start_offset is not None
    ]
    known = f"they start at {', '.join(map(str, sorted(starts)))}" if starts else "there is none"
    raise CommandFailed(
        f"{partition}: no open transaction starts at offset {start_offset}: {known}"
    )


async def _refuse_to_tear(admin: Admin, partition: TopicPartition, producer_id: int) -> None:
    """Raise CommandFailed if a coordinator will end the producer's transaction on a partition."""
    try:
        last = (await find_last_transactions(admin, [producer_id])).get(producer_id)
    except UnsupportedApi as error:
        say(f"not checked whether a coordinator will end the transaction: {error}", err=True)
        return

    if last is not None and isinstance(last.description, KgroupError):
        raise last.description
    if last is not None and last.will_end(partition):
        raise CommandFailed(
            f"{partition}: the coordinator of transactional id {last.transactional_id} will end "
            f"this transaction (kbroker transactions describe {last.transactional_id}); "
            "--force aborts it here all the same, which tears it"
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
