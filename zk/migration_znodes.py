"""Znodes of a group whose offsets move from one store to the other. Kafka has none of these.

    /kgroup/migrations/<group>                          the migration; null if there never was one
    /kgroup/migrations/<group>/members/<consumer id>    the epoch that our member follows; ephemeral
    /kgroup/migrations/<group>/command                  the command that is at work; ephemeral

They are not under `/consumers`, because members of every kind share that directory.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import attrs

from protocol.frozen import frozen
from zk.znode_json import (
    Extra,
    JsonReader,
    ZnodeError,
    array,
    decimal_string,
    integer,
    optional,
    string,
    write_json,
)

E = TypeVar("E", bound=StrEnum)

VERSION = 1


class OffsetStorage(StrEnum):
    """A store of offsets, by its name in the setting `offsets.storage`."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"

    @property
    def other(self) -> "OffsetStorage":
        return _OTHER[self]


_OTHER = {
    OffsetStorage.ZOOKEEPER: OffsetStorage.KAFKA,
    OffsetStorage.KAFKA: OffsetStorage.ZOOKEEPER,
}


class OffsetMode(StrEnum):
    """The stores that a member reads and writes.

    The modes are in order: at any time the members of a group are in two neighbouring modes at
    most.
    """

    ZOOKEEPER = "zookeeper"
    DUAL_ZOOKEEPER = "dual-zookeeper"
    """Writes both, reads ZooKeeper."""
    DUAL_KAFKA = "dual-kafka"
    """Writes both, reads Kafka."""
    KAFKA = "kafka"

    @property
    def reads(self) -> OffsetStorage:
        """The store that a member reads the offset of a new partition from."""
        return OffsetStorage(self.removeprefix("dual-"))

    @property
    def is_dual(self) -> bool:
        """True if a member writes to both stores."""
        return self.startswith("dual-")


class MigrationPaths:
    """The directories: persistent, created as parents."""

    @staticmethod
    def directory() -> str:
        """Return the parent of all groups' migrations."""
        return "/kgroup/migrations"

    @staticmethod
    def members_path(group: str) -> str:
        return f"{GroupMigration.path(group)}/members"

    @staticmethod
    def command_path(group: str) -> str:
        return f"{GroupMigration.path(group)}/command"


@frozen(kw_only=True)
class GroupMigration:
    """The migration of a group's offsets to `target`.

    `goal` is the store it moves to now: `target`, or the other store on the way back. Members
    follow `mode`, regardless of their settings; a member that is late may still be in `came_from`.
    `epoch` grows with every change of mode. `proven` lists members that do not follow but were
    seen to write both stores; it is None until the stores have been verified.
    """

    target: OffsetStorage
    goal: OffsetStorage
    mode: OffsetMode
    came_from: OffsetMode
    epoch: int
    started_at_ms: int
    proven: tuple[str, ...] | None = None
    extra: Extra = attrs.field(factory=dict)

    @property
    def is_over(self) -> bool:
        """True if it was finalized or rolled back: members use one store."""
        return not self.mode.is_dual

    @staticmethod
    def path(group: str) -> str:
        return f"/kgroup/migrations/{group}"

    def encode(self) -> bytes:
        keys = {
            "version": VERSION,
            "target": self.target,
            "goal": self.goal,
            "mode": self.mode,
            "came_from": self.came_from,
            "epoch": self.epoch,
            "started_at_ms": str(self.started_at_ms),
            "proven": None if self.proven is None else list(self.proven),
        }
        return write_json({**keys, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/kgroup/migrations/<group>") -> "GroupMigration":
        """Raises ZnodeError, also for a state that no migration can reach."""
        read = JsonReader(data, path)
        read.take("version", _version)
        migration = GroupMigration(
            target=read.take("target", _word(OffsetStorage)),
            goal=read.take("goal", _word(OffsetStorage)),
            mode=read.take("mode", _word(OffsetMode)),
            came_from=read.take("came_from", _word(OffsetMode)),
            epoch=read.take("epoch", integer),
            started_at_ms=read.take("started_at_ms", decimal_string),
            proven=read.take("proven", optional(array(string)), None),
            extra=read.rest(),
        )

        # Members would follow a contradictory migration, each in its own way.
        if reason := _find_contradiction(migration):
            raise ZnodeError(path, reason)
        return migration


def _find_contradiction(migration: GroupMigration) -> str | None:
    modes = list(OffsetMode)

    # A migration goes forward or back by one mode.
    if abs(modes.index(migration.mode) - modes.index(migration.came_from)) != 1:
        return f"mode {migration.mode} does not follow {migration.came_from}"

    # The modes with a single store are the ends of the way: only the goal can be reached.
    if not migration.mode.is_dual and migration.mode.reads is not migration.goal:
        return f"mode {migration.mode} is not on the way to {migration.goal}"

    # Epoch 0 means that a member follows its own settings.
    if migration.epoch <= 0:
        return f"epoch {migration.epoch} is not positive"
    return None


@frozen
class MigrationMember:
    """The epoch that one of our members follows; ephemeral.

    Every operation that it begins or has in flight is in the mode of `epoch`. With epoch 0 it
    follows its `settings`: "zookeeper", "kafka" or "dual".
    """

    epoch: int
    settings: str
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path(group: str, consumer_id: str) -> str:
        return f"{MigrationPaths.members_path(group)}/{consumer_id}"

    def encode(self) -> bytes:
        keys = {"version": VERSION, "epoch": self.epoch, "settings": self.settings}
        return write_json({**keys, **self.extra})

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/kgroup/migrations/<group>/members/<consumer>"
    ) -> "MigrationMember":
        read = JsonReader(data, path)
        read.take("version", _version)
        return MigrationMember(
            read.take("epoch", integer), read.take("settings", string), extra=read.rest()
        )


def _word(words: type[E]) -> Callable[[Any], E]:
    return lambda value: words(string(value))


def _version(value: Any) -> int:
    """Refuse a later version, because we may be unable to follow what it means."""
    if integer(value) != VERSION:
        raise ValueError(f"only version {VERSION} is understood")
    return VERSION
