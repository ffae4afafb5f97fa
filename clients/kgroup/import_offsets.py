"""`kgroup import`: offsets that were exported, or written by Kafka's ExportZkOffsets, back."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import attrs
import click

from clients.errors import ClientError
from clients.group_facts import GroupFacts
from clients.group_reader import GroupReader
from clients.offset_export import STORES, ExportedOffset, read_export
from clients.output import (
    EXIT_FAILED,
    Column,
    CommandFailed,
    Failure,
    Listing,
    Target,
    output_option,
    report,
    show,
    target_options,
)
from clients.sessions import Sessions, connected
from offsets.store import CommitFailed, OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

COLUMNS = (
    Column("GROUP", 30),
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("NEW-OFFSET", 15),
    Column("STORE"),
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


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
    """
    if (file is None) == (input_file is None):
        raise click.UsageError("name one FILE")
    if zkconnect is not None:
        target = attrs.evolve(target, zookeeper=zkconnect)
    offsets, faults = read_export(_text(file or input_file or Path("-")), store)
    if faults:
        report(faults)
        raise click.exceptions.Exit(EXIT_FAILED)
    if target.zookeeper is None and any(offset.store == "zookeeper" for offset in offsets):
        raise click.UsageError("--zookeeper is needed: there are offsets for it")
    show(asyncio.run(imported(target, offsets, dry_run=dry_run, force=force)), output)


def _text(file: Path) -> str:
    """Raises OSError, CommandFailed."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read().decode()
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: not UTF-8: {error}") from None


async def imported(
    target: Target, offsets: Sequence[ExportedOffset], *, dry_run: bool, force: bool
) -> Listing:
    """Write group by group; what could not be written is named, and the rest goes on."""
    written: list[ExportedOffset] = []
    failures: list[Failure] = []
    needs_brokers = any(offset.store == "kafka" for offset in offsets)
    async with connected(target, brokers=needs_brokers) as sessions:
        for group, store, some in _by_group_and_store(offsets):
            if not force and (refusal := await _refusal(sessions, group, needs_brokers)):
                failures.append(refusal)
            elif dry_run:
                written += some
            else:
                done, failed = await _write(sessions, group, store, some)
                written += done
                failures += failed
    items = [{**e.item, "new_offset": e.committed.offset} for e in written]
    return Listing("import", COLUMNS, items, list(dict.fromkeys(failures)))


def _by_group_and_store(
    offsets: Sequence[ExportedOffset],
) -> Iterator[tuple[str, str, list[ExportedOffset]]]:
    ordered = sorted(offsets, key=lambda e: (e.group, e.store, e.partition))
    for (group, store), some in groupby(ordered, key=lambda e: (e.group, e.store)):
        yield group, store, list(some)


async def _refusal(sessions: Sessions, group: str, brokers: bool) -> Failure | None:
    """What is against writing offsets of this group."""
    reader = GroupReader(sessions)
    facts = await reader.group(group) if brokers else await reader.group_in_zookeeper(group)
    if facts.members:
        text = (
            f"Offsets can only be imported if the group '{group}' is inactive, but the current "
            f"state is {facts.state}."
        )
        return Failure(group, ErrorCode.NON_EMPTY_GROUP.name, text)
    if _is_moving(facts):
        text = f"group '{group}' is being migrated ({facts.storage}): finish that first"
        return Failure(group, "MigrationUnderWay", text)
    return None


def _is_moving(facts: GroupFacts) -> bool:
    """Whether a migration has both stores written; without members nothing else is known."""
    return facts.storage is not None and facts.storage.startswith("dual-")


async def _write(
    sessions: Sessions, group: str, store: str, offsets: Sequence[ExportedOffset]
) -> tuple[list[ExportedOffset], list[Failure]]:
    """What stands in the store afterwards, and what went wrong."""
    wanted = {offset.partition: offset.committed for offset in offsets}
    what = f"{group} in {store}"
    commit, fetch = _STORES[store]
    failures = []
    there: Offsets = {}
    try:
        await commit(sessions, group, wanted)
    except (ApiError, ClientError, CommitFailed) as error:
        failures.append(Failure.of(what, error))  # of one partition; others may be written
    try:
        there = await fetch(sessions, group, wanted)
    except (ApiError, ClientError, OffsetFetchFailed) as error:
        failures.append(Failure.of(what, error))
        there = error.found if isinstance(error, OffsetFetchFailed) else {}
    done = [
        e
        for e in offsets
        if e.partition in there and there[e.partition].offset == e.committed.offset
    ]
    if len(done) < len(offsets) and not failures:
        text = f"{len(offsets) - len(done)} offsets are not as they were written: others write too"
        failures.append(Failure(what, "OffsetsChanged", text))
    return done, failures


async def _commit_to_zookeeper(sessions: Sessions, group: str, wanted: Offsets) -> None:
    assert sessions.zk is not None
    await ZooKeeperStore(sessions.zk).commit(group, wanted)


async def _fetch_from_zookeeper(sessions: Sessions, group: str, wanted: Offsets) -> Offsets:
    assert sessions.zk is not None
    return await ZooKeeperStore(sessions.zk).fetch(group, wanted.keys())


async def _commit_to_kafka(sessions: Sessions, group: str, wanted: Offsets) -> None:
    await sessions.admin.commit_group_offsets(group, wanted)


async def _fetch_from_kafka(sessions: Sessions, group: str, wanted: Offsets) -> Offsets:
    return await sessions.admin.group_offsets(group, wanted)


_STORES = {
    "zookeeper": (_commit_to_zookeeper, _fetch_from_zookeeper),
    "kafka": (_commit_to_kafka, _fetch_from_kafka),
}
