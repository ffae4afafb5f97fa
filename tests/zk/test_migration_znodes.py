"""Znodes of migrations are written as specified, and contradictory ones refused."""

import json
from typing import Any

import attrs
import pytest

from zk.migration_znodes import (
    GroupMigration,
    MigrationMember,
    MigrationPaths,
    OffsetMode,
    OffsetStorage,
)
from zk.znodes import ZnodeError

MIGRATION = GroupMigration(
    target=OffsetStorage.KAFKA,
    goal=OffsetStorage.ZOOKEEPER,
    mode=OffsetMode.DUAL_KAFKA,
    came_from=OffsetMode.KAFKA,
    epoch=4,
    started_at_ms=1_700_000_000_000,
    proven=("g_jvm",),
)
CONTENT = (
    b'{"version":1,"target":"kafka","goal":"zookeeper","mode":"dual-kafka","came_from":"kafka",'
    b'"epoch":4,"started_at_ms":"1700000000000","proven":["g_jvm"]}'
)


def test_a_migration_is_written_as_it_is_read() -> None:
    assert MIGRATION.encode() == CONTENT
    assert GroupMigration.decode(CONTENT) == MIGRATION


def test_a_migration_not_yet_verified_has_proven_nobody() -> None:
    unverified = attrs.evolve(MIGRATION, proven=None)
    assert GroupMigration.decode(unverified.encode()) == unverified


def test_keys_of_others_are_written_back() -> None:
    content = json.dumps({**json.loads(CONTENT), "note": "x"}).encode()
    assert json.loads(GroupMigration.decode(content).encode())["note"] == "x"


@pytest.mark.parametrize(
    ("key", "value"),
    [("mode", "both"), ("target", 1), ("epoch", "4"), ("version", 2), ("proven", "g_jvm")],
)
def test_what_cannot_be_obeyed_is_refused_by_name(key: str, value: object) -> None:
    content = json.dumps({**json.loads(CONTENT), key: value}).encode()
    with pytest.raises(ZnodeError, match=f"'{key}'"):
        GroupMigration.decode(content)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"came_from": "zookeeper"}, "mode dual-kafka does not follow zookeeper"),
        ({"came_from": "dual-kafka"}, "mode dual-kafka does not follow dual-kafka"),
        ({"mode": "kafka", "came_from": "dual-kafka"}, "mode kafka is not on the way to zookeeper"),
        ({"epoch": 0}, "epoch 0 is not positive"),
    ],
)
def test_what_no_migration_ever_comes_to_is_refused(changed: dict[str, Any], said: str) -> None:
    content = json.dumps({**json.loads(CONTENT), **changed}).encode()
    with pytest.raises(ZnodeError, match=said):
        GroupMigration.decode(content)


def test_a_member_is_written_as_it_is_read() -> None:
    member = MigrationMember(3, "dual")
    assert member.encode() == b'{"version":1,"epoch":3,"settings":"dual"}'
    assert MigrationMember.decode(member.encode()) == member


def test_everything_of_a_group_lies_below_its_migration() -> None:
    assert GroupMigration.path("g") == "/kgroup/migrations/g"
    assert MigrationMember.path("g", "g_a") == "/kgroup/migrations/g/members/g_a"
    assert MigrationPaths.command_path("g") == "/kgroup/migrations/g/command"


@pytest.mark.parametrize(
    ("mode", "reads", "is_dual"),
    [
        (OffsetMode.ZOOKEEPER, OffsetStorage.ZOOKEEPER, False),
        (OffsetMode.DUAL_ZOOKEEPER, OffsetStorage.ZOOKEEPER, True),
        (OffsetMode.DUAL_KAFKA, OffsetStorage.KAFKA, True),
        (OffsetMode.KAFKA, OffsetStorage.KAFKA, False),
    ],
)
def test_a_mode_says_what_is_read_and_whether_both_are_written(
    mode: OffsetMode, reads: OffsetStorage, is_dual: bool
) -> None:
    assert (mode.reads, mode.is_dual) == (reads, is_dual)
