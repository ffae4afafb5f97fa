"""`kgroup export`: write committed offsets as JSON, or as Kafka's ExportZkOffsets writes them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import click

from clients.command_line.missing_rights import find_hidden_offsets, may_describe_topic
from clients.command_line.output import (
    EXIT_FAILED,
    Failure,
    Listing,
    Target,
    envelope,
    report,
    target_options,
    zookeeper_address,
)
from clients.command_line.printing import print_text, say
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from clients.groups.group_facts import counting_store
from clients.groups.group_reader import GroupReader
from clients.groups.zookeeper_groups import ZooKeeperGroups
from clients.resets.offset_export import COLUMNS, KIND, STORES, ExportedOffset, zk_lines
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.znodes import ConsumerGroup

CommittedOffsets = dict[TopicPartition, OffsetAndMetadata]

PARTLY_SEEN = (
    "warning: you may not describe every topic: offsets of the others are not in the export"
)


@click.command(
    "export",
    epilog="""\b
Examples:
  kgroup export analytics --zookeeper localhost:2181 > offsets.json
  kgroup export --store kafka --output-file all.json
  kgroup export --zkconnect localhost:2181 --group analytics --output-file offsets.txt""",
)
@target_options
@click.argument("groups", nargs=-1)
@click.option("--group", "more_groups", multiple=True, help="A group, as Kafka spells it.")
@click.option(
    "--store",
    type=click.Choice(STORES),
    help="Export only from this store.  [default: both, ZooKeeper's if --zookeeper is known]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "zk"]),
    help="zk: the lines of ExportZkOffsets, with ZooKeeper's offsets unless --store is kafka.  "
    "[default: json]",
)
@click.option(
    "--zkconnect",
    metavar="H:P[/CHROOT]",
    help="--zookeeper together with --format zk, as Kafka spells it.",
)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to write.  [default: standard output]",
)
def command(
    target: Target,
    groups: tuple[str, ...],
    more_groups: tuple[str, ...],
    store: str | None,
    form: str | None,
    zkconnect: str | None,
    output_file: Path | None,
) -> None:
    """Write the committed offsets of GROUPS, or of all groups, for `kgroup import`.

    Of a group that was migrated, ZooKeeper and Kafka both get the offset that counts: its members
    need not follow the migration where the file is imported.

    Offsets that cannot be read are reported and left out, and the exit code is 1.
    """
    if zkconnect is not None:
        target = attrs.evolve(target, zookeeper=zookeeper_address(zkconnect))

    # With --zkconnect the command behaves as ExportZkOffsets.
    form = form or ("json" if zkconnect is None else "zk")
    # Lines of ExportZkOffsets name no store, so they come from one alone.
    stores = (store or "zookeeper",) if form == "zk" or store else STORES

    # Without ZooKeeper, the default is what brokers hold.
    if target.zookeeper is None:
        if stores == ("zookeeper",):
            raise click.UsageError("--zookeeper is needed: those offsets are in ZooKeeper")
        stores = ("kafka",)

    offsets, failures, notes = asyncio.run(export_offsets(target, [*groups, *more_groups], stores))
    for note in notes:
        say(note, err=True)

    if form == "zk":
        text = zk_lines([offset for offset in offsets if ConsumerGroup.can_hold(offset.group)])
        failures += _unnameable(offsets)
    else:
        text = (
            envelope(Listing(KIND, COLUMNS, [offset.item for offset in offsets], failures)) + "\n"
        )

    if output_file is None:
        print_text(text, newline=False)
    else:
        output_file.write_text(text, "utf-8")

    # The JSON on stdout has the failures already.
    if failures:
        if form == "zk" or output_file is not None:
            report(failures)
        raise click.exceptions.Exit(EXIT_FAILED)


def _unnameable(offsets: Sequence[ExportedOffset]) -> list[Failure]:
    """Return a failure for each group whose lines would be those of another one."""
    groups = dict.fromkeys(offset.group for offset in offsets)
    text = "no node in ZooKeeper can have its name, and no line: use --format json"
    return [Failure(g, "InvalidName", text) for g in groups if not ConsumerGroup.can_hold(g)]


async def export_offsets(
    target: Target, group_ids: Sequence[str], stores: Sequence[str]
) -> tuple[list[ExportedOffset], list[Failure], list[str]]:
    """Return what the stores hold, ordered by group, store and partition; failures and notes."""
    async with connected(target, brokers="kafka" in stores, waits_for_dead=False) as sessions:
        reader = GroupReader(sessions)
        failures = reader.failures

        # Find the groups.
        if group_ids:
            names = list(dict.fromkeys(group_ids))
        elif "kafka" in stores:
            # Listing Kafka's groups needs brokers, which are not asked for ZooKeeper's offsets.
            names = [name.group for name in await reader.names()]
        else:
            names = sorted(await reader.zookeeper_names())

        # Many groups are read with one request.
        offsets_in = {store: await _fetch_offsets(reader, names, store) for store in stores}
        notes = []
        for group_id, counting in (await _migrated(reader, names)).items():
            if len(stores) > 1:
                # Elsewhere nobody knows of the migration (fault strangers-72).
                _fill_from(counting, group_id, offsets_in)
            elif counting not in stores:
                notes.append(f"note: {group_id} is migrated: its members read {counting}")
        offsets = [
            ExportedOffset(group_id, partition, store, offset)
            for group_id in names
            for store in stores
            for partition, offset in sorted(offsets_in[store].get(group_id, {}).items())
        ]

        # Of topics that may not be described brokers tell nothing (Kafka's rule).
        if "kafka" in stores and not await may_describe_topic(sessions.admin):
            failed = _failed_groups(failures)
            bare = [name for name in names if not offsets_in["kafka"].get(name)]
            failures += await find_hidden_offsets(
                sessions.admin, [name for name in bare if name not in failed]
            )
            if offsets:
                notes.append(PARTLY_SEEN)

        # A named group without offsets is a mistake; of all groups, many have none.
        if group_ids:
            known = {offset.group for offset in offsets} | _failed_groups(failures)
            for group_id in names:
                if group_id not in known:
                    text = f"Consumer group '{group_id}' has no committed offsets there."
                    failures.append(Failure(group_id, ErrorCode.GROUP_ID_NOT_FOUND.name, text))
        return offsets, failures, notes


async def _migrated(reader: GroupReader, group_ids: Sequence[str]) -> dict[str, str]:
    """Return the groups that have a migration, with the store that counts."""
    if reader.sessions.zk is None:
        return {}
    modes = await ZooKeeperGroups(reader.sessions.zk, reader.failures).migration_modes(group_ids)
    return {
        group_id: counting
        for group_id, mode in modes.items()
        if (counting := counting_store(mode)) is not None
    }


def _fill_from(
    counting: str, group_id: str, offsets_in: Mapping[str, dict[str, CommittedOffsets]]
) -> None:
    """Have both stores what counts, and no more: whichever a member reads, it goes on there."""
    counted = offsets_in[counting].get(group_id, {})
    for offsets in offsets_in.values():
        offsets[group_id] = counted


async def _fetch_offsets(
    reader: GroupReader, group_ids: Sequence[str], store: str
) -> dict[str, CommittedOffsets]:
    """Return what a store holds of each group. What cannot be read is a failure."""
    if store == "zookeeper":
        assert reader.sessions.zk is not None
        zookeeper_groups = ZooKeeperGroups(reader.sessions.zk, reader.failures)
        in_zookeeper = await zookeeper_groups.offsets(group_ids)
        # ZooKeeper keeps neither metadata nor leader epochs.
        return {
            group_id: {
                partition: OffsetAndMetadata(committed.offset)
                for partition, committed in offsets.items()
            }
            for group_id, offsets in in_zookeeper.items()
        }

    results = await reader.sessions.admin.offsets_of_each_group(group_ids)
    at_coordinators = {}
    for group_id, result in results.items():
        if isinstance(result, KgroupError):
            reader.failures.append(Failure.of(group_id, result))
        else:
            at_coordinators[group_id] = result
    return at_coordinators


def _failed_groups(failures: Sequence[Failure]) -> set[str]:
    """Return the groups of which something could not be read, in either store."""
    directory = f"{ConsumerGroup.directory()}/"
    named = {failure.what for failure in failures}
    return named | {what.removeprefix(directory).partition("/")[0] for what in named}
