"""`kgroup import`: offsets that were exported, or written by Kafka's ExportZkOffsets, back."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from clients.admin.offset_store import AdminStore
from clients.command_group import CommandFailed
from clients.errors import KgroupError
from clients.group_facts import GroupFacts
from clients.group_reader import GroupReader
from clients.kgroup.stdin_lines import standard_input
from clients.offset_export import STORES, ExportedOffset, read_export
from clients.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    show,
    target_options,
    zookeeper_address,
)
from clients.sessions import Sessions, connected
from offsets.store import DualStore, OffsetFetchFailed, OffsetStore
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 15),
    Column("STORE"),
)


@click.command(
    "import",
    epilog="""\b
Examples:
  kgroup import offsets.json --zookeeper localhost:2181
  kgroup import --zkconnect localhost:2181 --input-file offsets.txt""",
)
@target_options
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--input-file", type=click.Path(path_type=Path), help="FILE, as Kafka spells it.")
@click.option("--zkconnect", metavar="H:P[/CHROOT]", help="--zookeeper, as Kafka spells it.")
@click.option("--store", type=click.Choice(STORES), help="Write there, whatever the file says.")
@click.option("--dry-run", is_flag=True, help="Show what would be written.")
@click.option(
    "--force", is_flag=True, help="Also for groups that have members, or are being migrated."
)
@output_option
def command(
    target: Target,
    file: Path | None,
    input_file: Path | None,
    zkconnect: str | None,
    store: str | None,
    dry_run: bool,
    force: bool,
    output: str,
) -> None:
    """Commit the offsets in FILE (- is standard input) to the stores they came from.

    The format is recognised. A file with a fault is not imported at all. A group that has members
    is left alone, since they would write their own offsets over it or never look. What is printed
    has been read back.

    Where both stores hold offsets of a partition, and nothing says that one of them alone counts,
    both are written, whichever FILE names: its members may go by the larger. --store, and
    --zkconnect, write one store whatever the other holds.
    """
    if (file is None) == (input_file is None):
        raise click.UsageError("name one FILE")
    if zkconnect is not None:
        target = attrs.evolve(target, zookeeper=zookeeper_address(zkconnect))
    offsets, faults = read_export(_text(file or input_file or Path("-")), store)
    if faults:
        show(Listing("import", COLUMNS, (), faults), output)
    if not offsets:
        raise CommandFailed("there are no offsets in it")
    if target.zookeeper is None and any(offset.store == "zookeeper" for offset in offsets):
        raise click.UsageError("--zookeeper is needed: there are offsets for it")
    order = Order(offsets, one_store=bool(store or zkconnect), dry_run=dry_run, force=force)
    show(asyncio.run(imported(target, order)), output)


def _text(file: Path) -> str:
    """Raises OSError, CommandFailed."""
    try:
        if str(file) == "-":
            return standard_input().read().decode()
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: not UTF-8: {error}") from None


@attrs.frozen
class Order:
    """What to import, and how."""

    offsets: Sequence[ExportedOffset]
    one_store: bool = False
    """Whether the stores named are to be written and no other."""
    dry_run: bool = False
    force: bool = False

    @property
    def needs_brokers(self) -> bool:
        """Whether Kafka has to be written, or seen."""
        return not self.one_store or any(offset.store == "kafka" for offset in self.offsets)


async def imported(target: Target, order: Order) -> Listing:
    """Write group by group; what could not be written is named, and the rest goes on."""
    written: list[ExportedOffset] = []
    failures: list[Failure] = []
    by_group: dict[str, list[ExportedOffset]] = {}
    for offset in sorted(order.offsets, key=_place):
        by_group.setdefault(offset.group, []).append(offset)
    async with connected(target, brokers=order.needs_brokers) as sessions:
        reader = GroupReader(sessions)
        for group, wanted in by_group.items():
            if order.needs_brokers:
                facts = await reader.group(group)
            else:
                facts = await reader.group_in_zookeeper(group)
            if refusal := _refusal(facts, order, reader.failures):
                failures.append(refusal)
                continue
            if not order.one_store:
                wanted += twins(facts, wanted)
            if not order.dry_run:
                wanted, failed = await _write(sessions, group, wanted)
                failures += failed
            written += wanted
    items = [{**e.item, "new_offset": e.committed.offset} for e in written]
    return Listing("import", COLUMNS, items, list(dict.fromkeys(failures)))


def _place(offset: ExportedOffset) -> tuple[str, str, TopicPartition]:
    return offset.group, offset.store, offset.partition


def _refusal(facts: GroupFacts, order: Order, unread: Sequence[Failure]) -> Failure | None:
    """What is against writing offsets of this group."""
    group = facts.group
    if order.needs_brokers and facts.coordinator is None:
        why = next((failure.message for failure in unread if failure.what == group), "no answer")
        text = f"Kafka's offsets are not known ({why}); --store zookeeper writes there alone"
        return Failure(group, ErrorCode.COORDINATOR_NOT_AVAILABLE.name, text)
    if facts.members and not order.force:
        text = (
            f"Offsets can only be imported if the group '{group}' is inactive, but the current "
            f"state is {facts.state}."
        )
        return Failure(group, ErrorCode.NON_EMPTY_GROUP.name, text)
    if _is_moving(facts) and not order.force:
        text = f"group '{group}' is being migrated ({facts.storage}): finish that first"
        return Failure(group, "MigrationUnderWay", text)
    return None


def _is_moving(facts: GroupFacts) -> bool:
    """Whether a migration has both stores written."""
    return facts.storage is not None and facts.storage.startswith("dual-")


def twins(facts: GroupFacts, named: Sequence[ExportedOffset]) -> list[ExportedOffset]:
    """The same for the other store, where a partition is kept in both and one was named."""
    held = {(offset.partition, offset.store) for offset in named}
    return [
        attrs.evolve(offset, store=_OTHER[offset.store])
        for offset in named
        if (offset.partition, _OTHER[offset.store]) not in held
        and _is_dual(facts, offset.partition)
    ]


_OTHER = {"zookeeper": "kafka", "kafka": "zookeeper"}


def _is_dual(facts: GroupFacts, tp: TopicPartition) -> bool:
    if facts.zookeeper is None:
        return False
    if facts.storage is not None:
        return facts.storage.startswith("dual")
    both_hold = facts.zk_offset(tp) is not None and facts.kafka_offset(tp) is not None
    return both_hold and facts.coordination != "coordinator"


async def _write(
    sessions: Sessions, group: str, wanted: Sequence[ExportedOffset]
) -> tuple[list[ExportedOffset], list[Failure]]:
    """What stands in the stores afterwards, and what went wrong.

    Where both get the same offset, the one with the lower is written first (`DualStore.reset`).
    """
    stores = _stores(sessions)
    of_store = {
        store: {e.partition: e.committed for e in wanted if e.store == store} for store in STORES
    }
    zookeeper, kafka = of_store["zookeeper"], of_store["kafka"]
    both = {p: to for p, to in kafka.items() if p in zookeeper and zookeeper[p].offset == to.offset}
    failures = []
    done: list[ExportedOffset] = []
    try:
        if both:
            await DualStore(stores["kafka"], stores["zookeeper"]).reset(group, both)
    except KgroupError as error:
        failures.append(Failure.of(group, error))
    for store, offsets in of_store.items():
        if not offsets:
            continue
        what = f"{group} in {store}"
        try:
            rest = {p: offset for p, offset in offsets.items() if p not in both}
            await stores[store].commit(group, rest)
        except KgroupError as error:
            failures.append(Failure.of(what, error))  # of one partition; others may be written
        try:
            held = await stores[store].fetch(group, offsets.keys())
        except OffsetFetchFailed as error:
            failures.append(Failure.of(what, error))
            held = error.found
        done += [
            e
            for e in wanted
            if e.store == store
            and e.partition in held
            and held[e.partition].offset == e.committed.offset
        ]
    if len(done) < len(wanted) and not failures:
        text = f"{len(wanted) - len(done)} offsets are not as they were written: others write too"
        failures.append(Failure(group, "OffsetsChanged", text))
    return done, failures


def _stores(sessions: Sessions) -> dict[str, OffsetStore]:
    """By the names they have in exports."""
    stores: dict[str, OffsetStore] = {"kafka": AdminStore(sessions.admin)}
    if sessions.zk is not None:
        stores["zookeeper"] = ZooKeeperStore(sessions.zk)
    return stores
