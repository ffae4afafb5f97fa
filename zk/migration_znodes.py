"""Znodes of a group whose offsets move from one store to the other; ours alone.

    /kgroup/migrations/<group>                          the migration; null: there never was one
    /kgroup/migrations/<group>/members/<consumer id>    what a member of ours obeys; ephemeral
    /kgroup/migrations/<group>/command                  who moves the migration on; ephemeral

Nothing of it is under `/consumers`, where members of every kind are alike.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import attrs

from zk.znode_json import (
    Extra,
    Reader,
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
    """Where offsets are kept; the words of `offsets.storage`."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"

    @property
    def other(self) -> "OffsetStorage":
        """The other one."""
        return _OTHER[self]


_OTHER = {
    OffsetStorage.ZOOKEEPER: OffsetStorage.KAFKA,
    OffsetStorage.KAFKA: OffsetStorage.ZOOKEEPER,
}


class OffsetMode(StrEnum):
    """What a member reads and writes. The order is that of a ladder: only neighbours may meet."""

    ZOOKEEPER = "zookeeper"
    DUAL_ZOOKEEPER = "dual-zookeeper"
    """Writes both, reads ZooKeeper."""
    DUAL_KAFKA = "dual-kafka"
    """Writes both, reads Kafka."""
    KAFKA = "kafka"

    @property
    def reads(self) -> OffsetStorage:
        """The store that says where a partition goes on."""
        return OffsetStorage(self.removeprefix("dual-"))

    @property
    def is_dual(self) -> bool:
        """Whether both stores are written."""
        return self.startswith("dual-")


class MigrationPaths:
    """The directories: persistent, made as parents."""

    @staticmethod
    def directory() -> str:
        """Of all groups."""
        return "/kgroup/migrations"

    @staticmethod
    def members_path(group: str) -> str:
        return f"{GroupMigration.path(group)}/members"

    @staticmethod
    def command_path(group: str) -> str:
        return f"{GroupMigration.path(group)}/command"


@attrs.frozen(kw_only=True)
class GroupMigration:
    """The migration of a group's offsets to `target`, or, with that as its `goal`, back again.

    Members obey `mode`, whatever their settings say; those who came late may yet be in
    `came_from`. `epoch` grows with every change of mode. `proven`: members that do not obey and
    were seen to write both stores; None until the stores have been verified.
    """

    target: OffsetStorage
    goal: OffsetStorage
    mode: OffsetMode
    came_from: OffsetMode
    epoch: int
    started_at_ms: int
    proven: tuple[str, ...] | None = None
    extra: Extra = attrs.field(factory=dict)

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
        """Raises ZnodeError, also for what no migration ever comes to."""
        read = Reader(data, path)
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
        if reason := _impossible(migration):
            raise ZnodeError(path, reason)
        return migration


def _impossible(migration: GroupMigration) -> str | None:
    """What contradicts itself would be obeyed, and lead members apart."""
    rungs = list(OffsetMode)
    if abs(rungs.index(migration.mode) - rungs.index(migration.came_from)) != 1:
        return f"nobody comes to {migration.mode} from {migration.came_from}"
    if not migration.mode.is_dual and migration.mode.reads is not migration.goal:
        return f"{migration.mode} is not on the way to {migration.goal}"
    return None if migration.epoch > 0 else f"{migration.epoch} is no epoch"


@attrs.frozen
class MigrationMember:
    """What a member of ours says of itself; ephemeral.

    `epoch`: every operation it begins, and every one under way, is of that epoch's mode; 0: of its
    `settings`, which are "zookeeper", "kafka" or "dual".
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
        read = Reader(data, path)
        read.take("version", _version)
        return MigrationMember(
            read.take("epoch", integer), read.take("settings", string), extra=read.rest()
        )


def _word(words: type[E]) -> Callable[[Any], E]:
    return lambda value: words(string(value))


def _version(value: Any) -> int:
    """A later version may mean what we cannot obey: better not to go on at all."""
    if integer(value) != VERSION:
        raise ValueError(f"only version {VERSION} is understood")
    return VERSION
