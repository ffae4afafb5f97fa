"""`kgroup reset`, `undo`, `journal`, `copy` and `rename` on a running cluster."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from clients import blocking
from clients.admin import Admin, NewTopic
from clients.admin.descriptions import ListedOffset
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.deliveries import Delivery
from clients.producer.producer import Producer
from clients.producer.shared_delivery import SharedDelivery
from clients.resets.reset import plan_resets
from clients.resets.reset_plan import Named
from protocol.records.builder import BatchBuilder
from protocol.records.compression import Codec
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.kgroup.reset_stage import RECORDS, ResetStage, filled_dev, running_member
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import block_until
from zk.migration_znodes import OffsetMode
from zk.znodes import ConsumerOffset, ConsumerRegistration

NOTHING_WRITTEN = "Nothing was written: that was a dry run. Add --execute to write."


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    """Fill the topic."""
    return filled_dev(dev_cluster)


# --- reset


def test_a_dry_run_says_what_it_would_repeat_and_writes_nothing(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7})
    result = stage.run("reset", group, "--topic", f"{stage.topic}:0", "--to-earliest")
    assert result.exit_code == 0
    header, row = result.stdout.splitlines()
    assert header.split()[:4] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert row.split() == [group, stage.topic, "0", "0", "7", "0", "7", "7", "min"]
    assert NOTHING_WRITTEN in result.stderr
    assert stage.offsets(group) == {0: 7}


def test_a_reset_is_journalled_and_its_undo_restores_offset_and_metadata(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7})
    before = stage.committed(group)
    journal_id = stage.reset(group, "--to-offset", "2", "--reason", "it's wrong")
    assert stage.offsets(group) == {0: 2, 1: 0}

    (row, _) = stage.items("journal", str(journal_id))
    expected = {"status": "done", "reason": "it's wrong", "old_offset": 7, "new_offset": 2}
    assert expected.items() <= row.items()
    assert row["command"].split()[0] == "kgroup"

    undone = stage.items("undo", str(journal_id))
    assert {item["journal_id"] for item in undone} == {journal_id + 1}
    assert stage.committed(group) == before

    entries = {item["id"]: item for item in stage.items("journal")}
    assert (entries[journal_id]["status"], entries[journal_id]["undone_by"]) == (
        "undone",
        journal_id + 1,
    )


@pytest.mark.fault("strangers-29")
def test_the_way_back_is_to_the_cluster_that_was_typed(stage: ResetStage, tmp_path: Path) -> None:
    login = tmp_path / "my login.properties"
    login.write_text("client.id=a-test\n")
    typed = ("--bootstrap-server", stage.bootstrap, "--command-config", str(login))
    group = stage.group({stage.t0: 7})
    written = stage.run(
        "reset", group, "--topic", stage.topic, "--to-earliest", "--execute", *typed
    )
    journal = re.search(r"`kgroup (undo \d+ .*)` takes it back", written.stderr)
    assert journal is not None, written.stderr
    assert tuple(shlex.split(journal[1])[2:]) == typed

    # What is said of one that is undone already leads there too.
    assert stage.run(*shlex.split(journal[1])).exit_code == 0
    assert stage.offsets(group) == {0: 7}
    again = stage.run(*shlex.split(journal[1]))
    assert f"--bootstrap-server {stage.bootstrap} --command-config '{login}'` takes that" in (
        again.stderr
    )

    status = stage.run("migrate", "status", group, "--zookeeper", stage.zookeeper)
    assert f"next: kgroup migrate plan {group} --zookeeper {stage.zookeeper}\n" in status.stderr


def test_an_undo_is_refused_where_the_group_has_moved_and_says_by_how_much(
    stage: ResetStage,
) -> None:
    group = stage.group({stage.t0: 7, stage.t1: 0})
    journal_id = stage.reset(group, "--to-earliest")
    stage.group({stage.t0: 3}, group)

    (error,) = stage.errors("undo", str(journal_id))
    assert error["what"] == str(stage.t0)
    assert error["message"] == "it moved by +3 in kafka since: 0 was written, 3 is held"
    refused = stage.run("undo", str(journal_id))
    assert refused.stderr.startswith("nothing was written; --force writes all the same\n")
    assert stage.offsets(group) == {0: 3, 1: 0}

    stage.items("undo", str(journal_id), "--force")
    assert stage.offsets(group) == {0: 7, 1: 0}


def test_an_undo_can_be_undone_by_its_own_id_and_no_entry_twice(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7, stage.t1: 0})
    first = stage.reset(group, "--to-earliest")
    stage.items("undo", str(first))
    assert stage.offsets(group)[0] == 7

    again = stage.run("undo", str(first))
    assert again.exit_code == 1
    assert f"was undone by {first + 1}: `kgroup undo {first + 1}` takes that back" in again.stderr

    stage.items("undo", str(first + 1))
    assert stage.offsets(group)[0] == 0


def test_kafkas_spelling_exports_a_plan_that_a_file_brings_back(
    stage: ResetStage, tmp_path: Path
) -> None:
    one = stage.group({stage.t0: 7})
    two = stage.group({stage.t0: 5})
    groups = ("--group", one, "--group", two)
    exported = stage.run("--reset-offsets", *groups, "--all-topics", "--shift-by", "-1", "--export")
    assert (exported.exit_code, exported.stdout) == (
        0,
        f"{one},{stage.topic},0,6\n{two},{stage.topic},0,4\n",
    )

    file = tmp_path / "plan.csv"
    file.write_text(exported.stdout)
    stage.items("--reset-offsets", *groups, "--from-file", str(file), "--execute")
    assert (stage.offsets(one), stage.offsets(two)) == ({0: 6}, {0: 4})

    # A file of one group names it not.
    file.write_text(f"{stage.topic},0,3\n")
    stage.items("reset", one, "--from-file", str(file), "--execute")
    assert stage.offsets(one) == {0: 3}


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to-datetime", "2013-05-31T11:38:20.000"], 5),
        (["--to-datetime", "2013-05-31T13:38:20.000+02:00"], 5),
        (["--by-duration", "P9999D"], 0),
        (["--by-duration", "PT1M"], RECORDS),
        (["--to-latest"], RECORDS),
        (["--to-current"], 7),
        (["--shift-by", "999"], RECORDS),
    ],
)
def test_kafkas_positions_lead_where_they_say(
    stage: ResetStage, where: list[str], offset: int
) -> None:
    group = stage.group({stage.t0: 7})
    (item,) = stage.items("reset", group, "--topic", f"{stage.topic}:0", *where)
    assert item["new_offset"] == offset


def test_what_cannot_be_planned_is_named_and_the_rest_is_written(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7})
    topics = ("--topic", f"{stage.topic}:0,9", "--topic", "no-such-topic")
    errors = stage.errors("reset", group, *topics, "--to-earliest", "--execute")
    assert [error["what"] for error in errors] == [f"{stage.topic}-9", "no-such-topic"]
    assert stage.offsets(group) == {0: 0}


def test_a_group_that_is_deleted_after_the_dry_run_is_made_again_by_the_reset(
    stage: ResetStage,
) -> None:
    group = stage.group({stage.t0: 7})
    where = ("--topic", f"{stage.topic}:0", "--to-offset", "4")
    assert stage.items("reset", group, *where)[0]["old_offset"] == 7
    assert stage.run("delete", group).exit_code == 0

    (item,) = stage.items("reset", group, *where, "--execute")
    assert (item["old_offset"], item["new_offset"]) == (None, 4)

    # What the reset was the first to commit, its undo deletes.
    stage.items("undo", str(item["journal_id"]))
    assert stage.offsets(group) == {}


def test_a_group_with_a_name_of_many_signs_is_reset_and_undone(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7}, f'{unique("g")} "quoted", a\nline 🛩')

    # ZooKeeper could not hold the name.
    brokers_only = ("--zookeeper", "", "--topic", f"{stage.topic}:0")
    (item,) = stage.items("reset", group, *brokers_only, "--to-earliest", "--execute")
    assert item["group"] == group
    stage.items("undo", str(item["journal_id"]), "--zookeeper", "")
    assert stage.offsets(group) == {0: 7}


@pytest.mark.parametrize(
    "args",
    [
        ["reset", "g", "--topic", "t"],
        ["reset", "g", "--to-earliest"],
        ["reset", "--topic", "t", "--to-earliest"],
        ["reset", "g", "--all-groups", "--all-topics", "--to-earliest"],
        ["reset", "g", "--all-topics", "--to-earliest", "--to-latest"],
        ["reset", "g", "--all-topics", "--to-earliest", "--dry-run", "--execute"],
        ["reset", "g", "--all-topics", "--by-duration", "P"],
        ["reset", "g", "--all-topics", "--by-duration", "1 hour"],
        ["reset", "g", "--all-topics", "--to-datetime", "earliest"],
        ["reset", "g", "--all-topics", "--to-offset", "-1"],
        ["undo", "0"],
        ["copy", "g", "g"],
        ["copy", "g", "h", "--by", "timestamp"],
    ],
)
def test_wrong_usage_is_refused_before_anything_is_asked(
    stage: ResetStage, args: list[str]
) -> None:
    result = stage.run(*args)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "text", ["t,0", "t,x,1", "t,0,-1", "t,0,99999999999999999999", "t,0,1,2,3", ""]
)
def test_a_file_with_a_fault_is_refused_with_its_line(stage: ResetStage, text: str) -> None:
    result = stage.run("reset", "g", "--from-file", "-", "--execute", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: -: ")


# --- stores


def test_a_group_in_zookeeper_is_reset_there(stage: ResetStage) -> None:
    group = unique("old")
    stage.write({ConsumerOffset.path(group, *stage.t0): b"7"})
    (item,) = stage.items(
        "reset", group, "--topic", f"{stage.topic}:0", "--to-earliest", "--execute"
    )
    assert (item["store"], stage.read(group), stage.offsets(group)) == ("zookeeper", b"0", {})
    stage.items("undo", str(item["journal_id"]))
    assert stage.read(group) == b"7"


def test_both_stores_of_a_group_are_reset_and_restored_each_to_its_own(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})
    stage.write({ConsumerOffset.path(group, *stage.t0): b"7"})
    (item,) = stage.items("reset", group, "--all-topics", "--to-earliest", "--execute")
    assert (item["store"], stage.read(group), stage.offsets(group)) == ("dual", b"0", {0: 0})
    stage.items("undo", str(item["journal_id"]))
    assert (stage.read(group), stage.offsets(group)) == (b"7", {0: 5})


def test_a_group_with_members_in_zookeeper_is_refused_also_online(stage: ResetStage) -> None:
    group = unique("old")
    registration = ConsumerRegistration({stage.topic: 1}, "static", 0)
    stage.write(
        {
            ConsumerOffset.path(group, *stage.t0): b"7",
            ConsumerRegistration.path(group, f"{group}_host-1-abcdef01"): registration.encode(),
        }
    )
    for online in ([], ["--online"]):
        where = ("--all-topics", "--to-earliest", "--execute", *online)
        (error,) = stage.errors("reset", group, *where)
        assert error["error"] == "NON_EMPTY_GROUP"
        assert stage.read(group) == b"7"


# --- members


def test_a_group_with_members_is_refused_and_with_online_they_start_again(
    stage: ResetStage,
) -> None:
    group = unique("live")
    with running_member(stage, group) as member:
        where = ("--topic", f"{stage.topic}:0", "--to-earliest", "--execute")
        (error,) = stage.errors("reset", group, *where)
        assert error["error"] == "NON_EMPTY_GROUP"
        assert error["message"].startswith(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current "
            "state is Stable. Stop its members ("
        )

        (item,) = stage.items("reset", group, *where, "--online")
        assert item["repeats"] == RECORDS

        # The member is still running, and consumes all of it once more.
        block_until(
            lambda: stage.offsets(group).get(0) == RECORDS, "a member that has consumed all again"
        )
        assert member.poll() is None
        member.terminate()
        printed, _ = member.communicate()
    assert printed.split() == [str(number) for number in range(RECORDS)] * 2


# --- copy and rename


def test_a_copy_has_offsets_and_metadata_of_both_stores(stage: ResetStage) -> None:
    source = stage.group({stage.t0: 5})
    stage.write({ConsumerOffset.path(source, *stage.t0): b"7"})
    target = unique("copy")
    stage.items("copy", source, target)
    assert stage.committed(target) == stage.committed(source)
    assert stage.read(target) == b"7"


@pytest.mark.fault("strangers-35")
@pytest.mark.parametrize("leftover", [10, None])
def test_a_copy_of_a_migrated_group_has_the_offset_that_counts_in_both_stores(
    stage: ResetStage, leftover: int | None
) -> None:
    """Its members may read either: they follow their settings, and not the source's migration."""
    source, target = migrated(stage, leftover), unique("copy")
    (item,) = stage.items("copy", source, target)
    assert (item["new_offset"], stage.offsets(target), stage.read(target)) == (2, {0: 2}, b"2")


def migrated(stage: ResetStage, leftover: int | None) -> str:
    """A group that was migrated to ZooKeeper, where it is at 2."""
    group = stage.group({stage.t0: leftover, stage.t1: 7} if leftover else {})
    stage.migrate(group, 2)
    return group


@pytest.mark.fault("strangers-74")
def test_an_undo_is_written_where_members_read_since_a_migration(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})
    journal_id = stage.reset(group, "--to-offset", "3")
    stage.migrate(group, 3)
    stage.items("undo", str(journal_id))
    assert (stage.offsets(group)[0], stage.read(group)) == (5, b"5")


@pytest.mark.fault("strangers-74")
def test_an_undo_takes_nothing_back_where_members_have_gone_on(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})
    journal_id = stage.reset(group, "--to-offset", "3")
    stage.migrate(group, 4)
    (error,) = stage.errors("undo", str(journal_id))
    assert "it moved by +1 in zookeeper since: 3 was written, 4 is held" in error["message"]
    assert (stage.offsets(group)[0], stage.read(group)) == (3, b"4")


@pytest.mark.fault("strangers-74")
def test_an_undo_within_a_migration_is_written_to_both_stores(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})
    journal_id = stage.reset(group, "--to-offset", "3")
    stage.migrate(group, 3, mode=OffsetMode.DUAL_ZOOKEEPER, came_from=OffsetMode.ZOOKEEPER)
    stage.items("undo", str(journal_id))
    assert (stage.offsets(group)[0], stage.read(group)) == (5, b"5")


@pytest.mark.fault("strangers-77")
@pytest.mark.parametrize("leftover", [10, None])
def test_a_rename_of_a_migrated_group_is_undone_to_what_counted(
    stage: ResetStage, leftover: int | None
) -> None:
    """The migration goes with the group: its members follow their settings afterwards."""
    group, target = migrated(stage, leftover), unique("new")
    ids = {item["journal_id"] for item in stage.items("rename", group, target)}
    (copy,) = ids
    stage.items("undo", str(copy + 1))
    stage.items("undo", str(copy))
    assert (stage.offsets(group), stage.read(group)) == ({0: 2}, b"2")


@pytest.mark.fault("strangers-75")
def test_an_import_is_written_where_members_read_since_a_migration(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 5})
    exported = stage.run("export", group, "--store", "kafka").stdout
    stage.migrate(group, 9)
    imported = stage.run("import", "-", stdin=exported)
    assert imported.exit_code == 0, imported.output
    assert (stage.offsets(group), stage.read(group)) == ({0: 5}, b"5")


@pytest.mark.fault("strangers-72")
@pytest.mark.parametrize("leftover", [10, None])
def test_an_export_of_a_migrated_group_has_the_offset_that_counts_in_both_stores(
    stage: ResetStage, leftover: int | None
) -> None:
    """The way back after its deletion, which ends the migration: members follow their settings."""
    group = migrated(stage, leftover)
    exported = stage.run("export", group)
    rows = json.loads(exported.stdout)["items"]
    assert [(row["store"], row["offset"]) for row in rows] == [("zookeeper", 2), ("kafka", 2)]
    told = stage.run("export", group, "--store", "kafka").stderr
    assert f"note: {group} is migrated: its members read zookeeper" in told

    deleted = stage.run("delete", group)
    assert f"note: {group}: its migration is deleted with it" in deleted.stderr
    imported = stage.run("import", "-", stdin=exported.stdout)
    assert imported.exit_code == 0, imported.output
    assert (stage.offsets(group), stage.read(group)) == ({0: 2}, b"2")


@pytest.mark.fault("strangers-71")
def test_a_copy_of_a_migrated_group_to_another_cluster_says_what_its_members_read(
    stage: ResetStage,
) -> None:
    group = migrated(stage, None)
    copied = stage.run("copy", group, unique("c"), "--to-bootstrap-server", stage.bootstrap)
    assert f"members of {group} follow its migration here" in copied.stderr


@pytest.mark.fault("strangers-37")
def test_a_copy_over_a_group_is_written_where_that_one_reads(stage: ResetStage) -> None:
    source, target = stage.group({stage.t0: 5}), unique("copy")
    stage.write({ConsumerOffset.path(target, *stage.t0): b"9"})
    (item,) = stage.items("copy", source, target, "--force")
    assert (item["old_offset"], item["new_offset"]) == (9, 5)
    assert (stage.offsets(target), stage.read(target)) == ({0: 5}, b"5")
    (shown,) = stage.items("describe", target)
    assert shown["current_offset"] == 5


@pytest.mark.fault("strangers-128")
@pytest.mark.parametrize("command", ["copy", "rename"])
def test_two_groups_do_not_become_one_though_they_have_no_partition_in_common(
    stage: ResetStage, command: str
) -> None:
    source, target = stage.group({stage.t0: 5}), stage.group({stage.t1: 1})
    (error,) = stage.errors(command, source, target)
    assert f"group '{target}' has offsets already" in error["message"]
    assert (stage.offsets(source), stage.offsets(target)) == ({0: 5}, {1: 1})


def test_a_copy_over_offsets_is_refused_unless_it_is_forced(stage: ResetStage) -> None:
    source, target = stage.group({stage.t0: 5}), stage.group({stage.t0: 1})
    (error,) = stage.errors("copy", source, target)
    assert "--force overwrites them" in error["message"]
    assert stage.offsets(target) == {0: 1}

    (item,) = stage.items("copy", source, target, "--force")
    assert stage.offsets(target) == {0: 5}
    stage.items("undo", str(item["journal_id"]))
    assert stage.offsets(target) == {0: 1}


def test_a_renamed_group_is_gone_and_comes_back_by_undoing_both_entries(stage: ResetStage) -> None:
    source, target = stage.group({stage.t0: 5}), unique("new")
    before = stage.committed(source)
    (item,) = stage.items("rename", source, target)
    assert (stage.committed(source), stage.committed(target)) == ({}, before)
    assert source not in stage.run("list").stdout.split()

    copied = item["journal_id"]
    entries = {item["id"]: item for item in stage.items("journal")}
    assert [entries[number]["action"] for number in (copied, copied + 1)] == ["copy", "delete"]
    for number in (copied + 1, copied):
        stage.items("undo", str(number))
    assert (stage.committed(source), stage.committed(target)) == (before, {})


def test_a_group_with_members_is_not_renamed(stage: ResetStage) -> None:
    group = unique("live")
    with running_member(stage, group):
        (error,) = stage.errors("rename", group, unique("new"))
    assert error["error"] == "NON_EMPTY_GROUP"


def test_a_copy_of_an_unknown_group_makes_none(stage: ResetStage) -> None:
    (error,) = stage.errors("copy", unique("none"), unique("copy"))
    assert error["error"] == "GROUP_ID_NOT_FOUND"


@pytest.mark.fault("tool-F1")
def test_a_copy_by_timestamp_names_a_message_without_a_timestamp(stage: ResetStage) -> None:
    topic = unique("untimed")
    partition = TopicPartition(topic, 0)

    async def produce() -> None:
        async with Admin(stage.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        async with Producer({"bootstrap.servers": stage.bootstrap}) as producer:
            # As a producer that knows no time: ours sends one.
            builder = BatchBuilder(Codec.NONE, 1 << 14)
            for value in (b"a", b"b"):
                builder.try_append(-1, None, value)
            delivery = SharedDelivery(builder.count)
            await producer.send_batch(partition, builder, cast(Delivery, delivery))
            await producer.flush()
            assert delivery.error is None

    asyncio.run(produce())
    for offset in (1, 2):
        source, target = stage.group({partition: offset}), unique("copy")
        (error,) = stage.errors(
            "copy", source, target, "--to-bootstrap-server", stage.bootstrap, "--by", "timestamp"
        )
        assert error["what"] == str(partition)
        assert "has no timestamp" in error["message"]
        assert stage.offsets(target) == {}

    (row,) = stage.items("describe", stage.group({partition: 1}))
    assert (row["lag"], row["time_lag_ms"], row["time_lag_method"]) == (1, None, None)


@pytest.mark.fault("tool-F5")
def test_a_copy_by_timestamp_of_a_group_that_has_a_marker_before_it_has_consumed_all(
    stage: ResetStage,
) -> None:
    topic = unique("markers")

    async def produce() -> None:
        async with Admin(stage.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
        settings = {"bootstrap.servers": stage.bootstrap, "transactional.id": topic}
        async with Producer(settings) as producer, producer.transaction():
            await producer.send(topic, b"x")

    asyncio.run(produce())
    source, target = stage.group({TopicPartition(topic, 0): 1}), unique("copy")
    stage.items(
        "copy", source, target, "--to-bootstrap-server", stage.bootstrap, "--by", "timestamp"
    )
    # Before the marker or behind it, by what its time is.
    (row,) = stage.items("describe", target)
    assert (row["current_offset"] in (1, 2), row["lag"]) == (True, 0)


@pytest.mark.fault("strangers-53")
def test_a_copy_to_another_cluster_says_that_members_of_zookeeper_find_nothing_there(
    stage: ResetStage,
) -> None:
    in_zookeeper, in_kafka = unique("z"), stage.group({stage.t0: 5})
    stage.write({ConsumerOffset.path(in_zookeeper, *stage.t0): b"5"})
    for source, warns in ((in_zookeeper, True), (in_kafka, False)):
        copied = stage.run("copy", source, unique("c"), "--to-bootstrap-server", stage.bootstrap)
        assert copied.exit_code == 0, copied.output
        warning = f"members of {source} read offsets in ZooKeeper"
        assert (warning in copied.stderr) == warns
        # In the same cluster each store has what it had.
        again = stage.run("copy", source, unique("c"))
        assert (again.exit_code, "warning" in again.stderr) == (0, False)


@pytest.mark.fault("strangers-41")
@pytest.mark.fault("strangers-43")
@pytest.mark.parametrize("partition", [0, 1])
def test_a_group_whose_offset_an_open_transaction_has_is_neither_renamed_nor_migrated(
    stage: ResetStage, partition: int
) -> None:
    """Nor is one whose transaction has the first offset of a partition."""
    group = stage.group({stage.t0: 5})
    settings = {"bootstrap.servers": stage.bootstrap, "transactional.id": unique("x")}
    with blocking.Producer(settings) as producer:
        producer.begin_transaction()
        offsets = {TopicPartition(stage.topic, partition): OffsetAndMetadata(9)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
        (error,) = stage.errors("rename", group, unique("new"), "--timeout", "500")
        assert error["error"] == "UNSTABLE_OFFSET_COMMIT"
        assert error["message"] == (
            f"a transaction is open that has offsets of group '{group}': wait for its end"
        )
        migrated = stage.run("migrate", "plan", group, "--to", "zookeeper", "--timeout", "500")
        assert migrated.exit_code == 1
        assert "UNSTABLE_OFFSET_COMMIT" in migrated.stderr
        producer.commit_transaction()

    target, after = unique("new"), {0: 5} | {partition: 9}
    block_until(lambda: stage.offsets(group) == after, "the transaction's offset counts")
    stage.items("rename", group, target)
    assert stage.offsets(target) == after


@pytest.mark.fault("core-R7")
def test_an_undo_online_deletes_what_the_reset_was_the_first_to_commit(stage: ResetStage) -> None:
    group = unique("g")
    journal_id = stage.reset(group, "--to-offset", str(RECORDS))
    with running_member(stage, group):
        undone = stage.items("undo", str(journal_id), "--online")
        assert {item["new_offset"] for item in undone} == {None}
        # Without an offset the member begins at the start, and commits anew.
        block_until(lambda: stage.offsets(group).get(0) == RECORDS, "the member's own commit")
    entries = {item["id"]: item for item in stage.items("journal")}
    assert entries[journal_id]["status"] == "undone"


def test_an_undo_online_that_deletes_alone_lets_members_join_at_once(tmp_path: Path) -> None:
    # A hold that is not ended lasts for longer than the test.
    with DevCluster(tmp_path, ("--set", "kgroup.reset.hold.ms=600000")) as cluster:
        stage = filled_dev(cluster)
        group = unique("g")
        journal_id = stage.reset(group, "--to-offset", str(RECORDS))
        with running_member(stage, group):
            stage.items("undo", str(journal_id), "--online")
            block_until(lambda: stage.offsets(group).get(0) == RECORDS, "the member's own commit")


@pytest.mark.fault("core-R7")
def test_an_undo_online_restores_the_store_in_zookeeper_too(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 7})
    stage.write({ConsumerOffset.path(group, *stage.t0): b"7"})
    journal_id = stage.reset(group, "--to-offset", "2")
    assert stage.read(group) == b"2"
    stage.items("undo", str(journal_id), "--online")
    assert stage.read(group) == b"7"
    assert stage.offsets(group)[0] == 7


# --- interrupted


@pytest.mark.fault("scale-C3")
def test_an_interrupted_reset_ends_with_what_was_done_and_what_was_not(stage: ResetStage) -> None:
    groups = [stage.group({stage.t0: 7}) for _ in range(60)]
    command = ("reset", *groups, "--topic", f"{stage.topic}:0", "--to-earliest", "--execute")
    process = subprocess.Popen(
        command_line("kgroup", *command, "-o", "json"),
        cwd=ROOT,
        env=stage.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    # What is written is said at once.
    assert process.stderr.readline().startswith(f"journal: {groups[0]} is entry ")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr

    listing = json.loads(stdout)
    done = [item["group"] for item in listing["items"]]
    not_done = [error["what"] for error in listing["errors"]]
    assert {error["error"] for error in listing["errors"]} == {"Interrupted"}
    assert done + not_done == groups
    assert {stage.offsets(group)[0] for group in done} == {0}
    assert {stage.offsets(group)[0] for group in not_done} == {7}
    entries = [item for item in stage.items("journal") if item["group"] in groups]
    assert [(entry["group"], entry["status"]) for entry in entries] == [
        (group, "done") for group in done
    ]


# --- many groups


class CountingAdmin(Admin):
    """An admin client that counts what it asks of logs."""

    calls = 0

    async def list_offsets(self, *args: Any, **named: Any) -> dict[TopicPartition, ListedOffset]:
        self.calls += 1
        return await super().list_offsets(*args, **named)

    async def first_timestamps(self, *args: Any, **named: Any) -> dict[TopicPartition, int]:
        self.calls += 1
        return await super().first_timestamps(*args, **named)


@pytest.mark.fault("scale-C2")
def test_plans_of_many_groups_ask_the_logs_as_often_as_that_of_one(stage: ResetStage) -> None:
    groups = [stage.group({stage.t0: 7}) for _ in range(12)]

    async def count(names: list[str]) -> int:
        async with CountingAdmin(stage.bootstrap) as admin:
            scope = TopicScope(stage.topic, None)
            plans = await plan_resets(
                Sessions(admin), dict.fromkeys(names, Named.EARLIEST), [scope]
            )
            rows = [(row.old, row.new, row.span_ms) for plan in plans for row in plan.rows]
            assert rows == [(7, 0, 7 * 60_000), (None, 0, None)] * len(names)
            return admin.calls

    assert asyncio.run(count(groups)) == asyncio.run(count(groups[:1])) == 4
