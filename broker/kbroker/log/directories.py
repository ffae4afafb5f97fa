"""Which log directories a command looks at, and the partitions in them.

Those that are named (`--log-dirs`), those of a cluster that `kbroker dev` keeps (`--data`), or
those that the brokers say they have. Of the latter only the ones on this machine can be read: a
directory is taken for a broker's when its meta.properties says so. Of the others there are the
sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from broker.kbroker.comma_lists import split_names
from broker.kbroker.log.read_only_directory import ReadOnlyDirectory
from clients.output import Failure, Target, target_options
from clients.sessions import connected
from core_log.checkpoint import CheckpointError, decode_offsets
from core_log.directory_name import DirectoryNameError, Kind, parse
from core_log.meta_properties import META_PROPERTIES, InconsistentMetaProperties, MetaProperties
from core_log.segments.file_name import LOG
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

T = TypeVar("T")


class NoLogDirectory(click.UsageError):
    """There is nothing to be looked at where the command line points."""


@attrs.frozen
class Where:
    """What a command line says about the log directories to look at; `target` counts if nothing."""

    target: Target
    log_dirs: tuple[Path, ...] = ()
    data: Path | None = None


@attrs.frozen
class LogDirectoryOf:
    """A log directory of `broker`, which is None where nobody was asked and nothing is stored.

    `sizes` has the bytes of each partition, by the broker's word, of a directory that is elsewhere
    and None of one that can be read here.
    """

    path: str
    broker: int | None
    sizes: Mapping[TopicPartition, int] | None = None

    @property
    def is_here(self) -> bool:
        """Whether it can be read."""
        return self.sizes is None

    def open(self) -> ReadOnlyDirectory:
        """The directory itself, if it is here. Raises OSError."""
        assert self.is_here
        return ReadOnlyDirectory(self.path)


def log_directory_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that say where to look; the command gets them as one `where`."""

    @functools.wraps(command)
    def with_where(
        *args: Any, target: Target, log_dirs: str | None, data: Path | None, **kwargs: Any
    ) -> T:
        if log_dirs is not None and data is not None:
            raise click.UsageError("give --log-dirs or --data, not both")
        paths = tuple(map(Path, split_names(log_dirs)))
        return command(*args, where=Where(target, paths, data), **kwargs)

    for option in reversed(WHERE_OPTIONS):
        with_where = option(with_where)
    return target_options(with_where)


WHERE_OPTIONS = (
    click.option(
        "--log-dirs",
        metavar="DIR[,DIR…]",
        help="Log directories to read; no broker is asked.",
    ),
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Those of all brokers that kbroker dev keeps in DIR.",
    ),
)


async def find(where: Where) -> tuple[list[LogDirectoryOf], list[Failure]]:
    """The log directories to look at, and what spoke against some of them.

    Raises NoLogDirectory, and as `connected` when the brokers have to be asked.
    """
    if where.data is not None:
        paths = sorted(path for path in where.data.glob("broker-*") if path.is_dir())
        if not paths:
            raise NoLogDirectory(f"{where.data} has no broker's directory")
    else:
        paths = list(where.log_dirs)
        if not paths:
            return await _asked(where.target)
    for path in paths:
        if not path.is_dir():
            raise NoLogDirectory(f"{path} is no directory")
        if any(path.glob(f"*{LOG}")):
            raise NoLogDirectory(
                f"{path} is one partition's directory: name the log directory that it is in"
            )
    return [LogDirectoryOf(str(path), stored_broker(path)) for path in paths], []


async def _asked(target: Target) -> tuple[list[LogDirectoryOf], list[Failure]]:
    found: list[LogDirectoryOf] = []
    failures: list[Failure] = []
    async with connected(target) as sessions:
        cluster = await sessions.admin.describe_cluster()
        for broker in sorted(each.node_id for each in cluster.brokers):
            directories = await sessions.admin.describe_log_dirs(broker)
            for path, description in sorted(directories.items()):
                if description.error is not ErrorCode.NONE:
                    refused = ApiError(description.error, f"off-line on broker {broker}")
                    failures.append(Failure.of(path, refused))
                elif _is_here(Path(path), broker, cluster.cluster_id):
                    found.append(LogDirectoryOf(path, broker))
                else:
                    sizes = {tp: each.size_bytes for tp, each in description.replicas.items()}
                    found.append(LogDirectoryOf(path, broker, sizes))
    return found, failures


def _is_here(path: Path, broker: int, cluster_id: str | None) -> bool:
    """Whether `path` of this machine is that broker's: another machine may have one like it."""
    meta = _stored(path)
    return meta is not None and meta.broker_id == broker and meta.cluster_id in (None, cluster_id)


def stored_broker(path: Path) -> int | None:
    """The broker whose directory it is, as far as its meta.properties tells."""
    meta = _stored(path)
    return None if meta is None else meta.broker_id


def _stored(path: Path) -> MetaProperties | None:
    try:
        return MetaProperties.decode((path / META_PROPERTIES).read_bytes())
    except (OSError, InconsistentMetaProperties):
        return None


def partitions_in(directory: ReadOnlyDirectory) -> Iterator[tuple[TopicPartition, str]]:
    """The partitions in a log directory, in order, and the names of their directories.

    Those that are being deleted or moved here are left out, and what is no partition's.
    """
    found = []
    for name in directory.children():
        try:
            topic_partition, kind = parse(name)
        except DirectoryNameError:
            continue
        if kind is Kind.CURRENT:
            found.append((topic_partition, name))
    yield from sorted(found)


def read_offsets(directory: ReadOnlyDirectory, name: str) -> dict[TopicPartition, int]:
    """One of a log directory's checkpoints; one that cannot be read counts as empty."""
    try:
        return decode_offsets(directory.read(name))
    except CheckpointError:
        return {}
