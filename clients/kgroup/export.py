"""`kgroup export`: committed offsets to a file, as JSON or as Kafka's ExportZkOffsets."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from clients.errors import KgroupError
from clients.group_reader import GroupReader
from clients.offset_export import COLUMNS, KIND, STORES, ExportedOffset, zk_lines
from clients.output import (
    EXIT_FAILED,
    Failure,
    Listing,
    Target,
    envelope,
    report,
    target_options,
    zookeeper_address,
)
from clients.sessions import connected
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


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
    help="Only what this store holds.  [default: both, ZooKeeper's if --zookeeper is known]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "zk"]),
    help="zk: lines of ExportZkOffsets, of ZooKeeper's offsets unless --store says kafka.  "
    "[default: json]",
)
@click.option(
    "--zkconnect", metavar="H:P[/CHROOT]", help="--zookeeper and --format zk, as Kafka spells it."
)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where to write.  [default: standard output]",
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

    What cannot be read is named, and left out: the exit code is then 1.
    """
    if zkconnect is not None:
        target = attrs.evolve(target, zookeeper=zookeeper_address(zkconnect))
    form = form or ("json" if zkconnect is None else "zk")
    stores = (store or "zookeeper",) if form == "zk" or store else STORES
    if target.zookeeper is None:
        if stores == ("zookeeper",):
            raise click.UsageError("--zookeeper is needed: those offsets are there")
        stores = ("kafka",)
    offsets, failures = asyncio.run(exported(target, [*groups, *more_groups], stores))
    if form == "zk":
        text = zk_lines(offsets)
    else:
        text = envelope(Listing(KIND, COLUMNS, [e.item for e in offsets], failures)) + "\n"
    if output_file is None:
        click.echo(text, nl=False)
    else:
        output_file.write_text(text, "utf-8")
    if failures:
        if form == "zk" or output_file is not None:
            report(failures)
        raise click.exceptions.Exit(EXIT_FAILED)


async def exported(
    target: Target, groups: Sequence[str], stores: Sequence[str]
) -> tuple[list[ExportedOffset], list[Failure]]:
    """What the stores hold, by group, store and partition."""
    async with connected(target, brokers="kafka" in stores) as sessions:
        reader = GroupReader(sessions)
        failures = reader.failures
        if groups:
            names = list(dict.fromkeys(groups))
        elif "kafka" in stores:
            names = [name.group for name in await reader.names()]
        else:
            names = sorted(await reader.zookeeper_names())
        found: list[ExportedOffset] = []
        for group in names:
            failed_before, found_before = len(failures), len(found)
            for store in stores:
                held = await _held(reader, group, store)
                found += [
                    ExportedOffset(group, tp, store, committed)
                    for tp, committed in sorted(held.items())
                ]
            if groups and len(found) == found_before and len(failures) == failed_before:
                text = f"Consumer group '{group}' has no committed offsets there."
                failures.append(Failure(group, ErrorCode.GROUP_ID_NOT_FOUND.name, text))
        return found, failures


async def _held(
    reader: GroupReader, group: str, store: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    if store == "zookeeper":
        assert reader.sessions.zk is not None
        offsets = await reader.offsets(reader.sessions.zk, group)
        return {tp: OffsetAndMetadata(committed.offset) for tp, committed in offsets.items()}
    try:
        return await reader.sessions.admin.group_offsets(group)
    except KgroupError as error:
        reader.failures.append(Failure.of(group, error))
        return {}
