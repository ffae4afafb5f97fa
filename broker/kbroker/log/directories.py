"""A command finds log directories in one of three ways, and lists the partitions in them.

`--log-dirs` names directories, `--data` names a cluster of `kbroker dev`; without both the brokers
report their directories. Some of those are on this machine: there the path exists, and its
meta.properties has the broker's id. Directories elsewhere have only the sizes that brokers report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.kbroker.comma_lists import split_names
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from clients.command_line.output import Failure, Target, target_options
from clients.command_line.sessions import connected
from clients.errors import KgroupError
from core_log.checkpoint import CheckpointError, decode_offsets
from core_log.directory_name import Kind, find_logs
from core_log.meta_properties import META_PROPERTIES, InconsistentMetaProperties, MetaProperties
from core_log.segments.file_name import LOG
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

T = TypeVar("T")


class NoLogDirectory(click.UsageError):
    """The command line points at something that is no log directory."""


@frozen
class Location:
    """Places of log directories, from the command line: `log_dirs`, or `data`, or the brokers."""

    target: Target
    """The brokers to ask if neither `log_dirs` nor `data` is given."""
    log_dirs: tuple[Path, ...] = ()
    data: Path | None = None


@frozen
class BrokerLogDirectory:
    """A log directory of `broker`; None if neither a broker nor meta.properties names one.

    `sizes` has the bytes of each partition in a directory on another machine, as its broker
    reports them. It is None for a directory that can be read here.
    """

    path: str
    broker: int | None
    sizes: Mapping[TopicPartition, int] | None = None

    @property
    def is_here(self) -> bool:
        """True if the directory can be read on this machine."""
        return self.sizes is None

    def open(self) -> ReadOnlyDirectory:
        """Open the directory, which must be here. Raises OSError."""
        assert self.is_here
        return ReadOnlyDirectory(self.path)


def log_directory_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that locate log directories; the command gets them as one `location`."""

    @functools.wraps(command)
    def with_location(
        *args: Any, target: Target, log_dirs: str | None, data: Path | None, **kwargs: Any
    ) -> T:
        if log_dirs is not None and data is not None:
            raise click.UsageError("give --log-dirs or --data, not both")
        paths = tuple(map(Path, split_names(log_dirs)))
        return command(*args, location=Location(target, paths, data), **kwargs)

    # Decorators apply from the inside out: the last one is the first in the help.
    for option in reversed(LOCATION_OPTIONS):
        with_location = option(with_location)
    return target_options(with_location)


LOCATION_OPTIONS = (
    click.option(
        "--log-dirs",
        metavar="DIR[,DIR…]",
        help="Log directories to read, without asking brokers.",
    ),
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Read the log directories of a kbroker dev cluster in DIR.",
    ),
)


async def find_log_directories(
    location: Location,
) -> tuple[list[BrokerLogDirectory], list[Failure]]:
    """Return the log directories, and a failure for each that is off-line, or whose broker is.

    Raises NoLogDirectory, and as `connected` when the brokers have to be asked.
    """
    # A cluster of `kbroker dev`, directories by name, or those that brokers report.
    if location.data is not None:
        paths = sorted(path for path in location.data.glob("broker-*") if path.is_dir())
        if not paths:
            raise NoLogDirectory(f"{location.data} has no broker's directory")
    else:
        paths = list(location.log_dirs)
        if not paths:
            return await _ask_brokers(location.target)

    for path in paths:
        if not path.is_dir():
            raise NoLogDirectory(f"{path} is not a directory")

        # One level too deep: it would seem to be a log directory without partitions.
        if any(path.glob(f"*{LOG}")):
            raise NoLogDirectory(
                f"{path} is the directory of one partition: name the log directory above it"
            )
    return [BrokerLogDirectory(str(path), read_broker_id(path)) for path in paths], []


async def _ask_brokers(target: Target) -> tuple[list[BrokerLogDirectory], list[Failure]]:
    directories: list[BrokerLogDirectory] = []
    failures: list[Failure] = []

    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        cluster = await sessions.admin.describe_cluster()
        for broker_id in sorted(broker.node_id for broker in cluster.brokers):
            try:
                descriptions = await sessions.admin.describe_log_dirs(broker_id)
            except KgroupError as failure:
                # The others are shown.
                failures.append(Failure.of(f"broker {broker_id}", failure))
                continue
            for path, description in sorted(descriptions.items()):
                if description.error is not ErrorCode.NONE:
                    # The broker cannot read it, so we do not try.
                    error = ApiError(description.error, f"off-line on broker {broker_id}")
                    failures.append(Failure.of(path, error))
                elif _is_here(Path(path), broker_id, cluster.cluster_id):
                    # On this machine: its files can be read.
                    directories.append(BrokerLogDirectory(path, broker_id))
                else:
                    # On another machine: its broker knows the sizes.
                    sizes = {
                        topic_partition: replica.size_bytes
                        for topic_partition, replica in description.replicas.items()
                    }
                    directories.append(BrokerLogDirectory(path, broker_id, sizes))
    return directories, failures


def _is_here(path: Path, broker: int, cluster_id: str | None) -> bool:
    """True if `path` on this machine belongs to that broker, and not to one of the same path."""
    meta = _read_meta_properties(path)
    return meta is not None and meta.broker_id == broker and meta.cluster_id in (None, cluster_id)


def read_broker_id(path: Path) -> int | None:
    """Return the broker id in the directory's meta.properties; None if it has none."""
    meta = _read_meta_properties(path)
    return None if meta is None else meta.broker_id


def _read_meta_properties(path: Path) -> MetaProperties | None:
    try:
        return MetaProperties.decode((path / META_PROPERTIES).read_bytes())
    except (OSError, InconsistentMetaProperties):
        return None


def list_partitions(directory: ReadOnlyDirectory) -> Iterator[tuple[TopicPartition, str]]:
    """List the partitions of a log directory, in order, with the names of their directories.

    Left out are partitions that are being deleted or moved here, and other directories. A log that
    was set aside is listed under the topic of its directory's name.
    """
    yield from sorted(
        (topic_partition, name)
        for name, topic_partition, kind in find_logs(directory.children())
        if kind in (Kind.CURRENT, Kind.SET_ASIDE)
    )


def read_offsets(directory: ReadOnlyDirectory, name: str) -> dict[TopicPartition, int]:
    """Read one of a log directory's checkpoints; a corrupt one counts as empty."""
    try:
        return decode_offsets(directory.read(name))
    except CheckpointError:
        return {}
