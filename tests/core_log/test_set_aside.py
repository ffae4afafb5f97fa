"""A log of an earlier topic is set aside for a week: neither served nor lost."""

from __future__ import annotations

import attrs
import pytest

from core_log.config import LogConfig
from core_log.directory_name import Kind, parse, set_aside_name
from core_log.log import Log
from core_log.log_manager import LogDirectoryError, LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.set_aside import SET_ASIDE, SET_ASIDE_MS, SetAsideLog
from protocol.errors import ApiError
from protocol.topic_identity import TopicIdentity, derive_topic_id
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition
from tests.core_log.conftest import Writer

T0 = TopicPartition("t", 0)
ID = "0123456789abcdef0123456789abcdef"
NOW_MS = 1_400_000_000_000


def loaded(memory: MemoryDirectory) -> LogManager:
    logs = LogManager([memory], LogConfig(), lambda: 0)
    logs.load()
    return logs


def with_one_set_aside(memory: MemoryDirectory) -> LogManager:
    logs = loaded(memory)
    logs.get_or_create(T0, LogConfig())
    logs.begin_setting_aside(T0, NOW_MS).run()
    return logs


def remove_due(logs: LogManager, now_ms: int) -> None:
    logs.remove_set_aside(logs.find_set_aside(now_ms))


@pytest.mark.parametrize("topic", ["flights", "a.b-c", "t" * 249])
def test_name_is_that_of_a_partition_of_a_legal_topic(topic: str) -> None:
    name = set_aside_name(TopicPartition(topic, 12), ID)
    stem, _, number = name.rpartition("-")
    assert (is_legal(stem), number) == (True, "12")
    assert parse(name) == (TopicPartition(stem, 12), Kind.SET_ASIDE)


@pytest.mark.parametrize("name", ["t.stray-0", f"t.{ID[1:]}.stray-0", f"t.{ID}.strays-0"])
def test_topic_with_a_similar_name_is_served(name: str) -> None:
    assert parse(name)[1] is Kind.CURRENT


def test_log_that_is_set_aside_is_not_opened_by_the_next_start(memory: MemoryDirectory) -> None:
    with_one_set_aside(memory).close()
    logs = loaded(memory)
    assert logs.logs == {}
    (name,) = memory.children()
    assert parse(name)[1] is Kind.SET_ASIDE


def test_log_is_set_aside_for_good_before_a_new_one_has_its_name(memory: MemoryDirectory) -> None:
    logs = loaded(memory)
    logs.get_or_create(T0, LogConfig())
    logs.sync_names()
    logs.begin_setting_aside(T0, NOW_MS).run()
    memory.lose_power()
    assert "t-0" not in memory.children()


@pytest.mark.fault("strangers-3")
@pytest.mark.parametrize("is_planned", [False, True])
def test_log_that_a_full_disk_kept_from_being_set_aside_is_not_the_new_topics(
    memory: MemoryDirectory, is_planned: bool
) -> None:
    logs = loaded(memory)
    Writer(logs.get_or_create(T0, LogConfig())).append(b"of the earlier topic")

    def begin() -> Log:
        if is_planned:
            planned = [logs.plan(T0, LogConfig(), is_new=False)]
            logs.make(planned)
            logs.serve(planned)
        return logs.get_or_create(T0, LogConfig(), is_new=False)

    memory.disk.free_bytes = 0
    taken_out = logs.begin_setting_aside(T0, NOW_MS)
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        taken_out.run()
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        begin()

    memory.disk.free_bytes = None
    assert begin().log_end_offset == 0
    kinds = sorted(parse(name)[1].name for name in memory.children())
    assert kinds == ["CURRENT", "SET_ASIDE"]
    logs.close()


def test_what_was_set_aside_is_removed_after_its_time(memory: MemoryDirectory) -> None:
    logs = with_one_set_aside(memory)
    logs.get_or_create(T0, LogConfig())
    remove_due(logs, NOW_MS + SET_ASIDE_MS - 1)
    assert len(memory.children()) == 2
    remove_due(logs, NOW_MS + SET_ASIDE_MS)
    assert memory.children() == ["t-0"]


def test_directory_of_somebody_else_keeps_nothing_that_was_set_aside(
    memory: MemoryDirectory,
) -> None:
    logs = with_one_set_aside(memory)
    memory.child("backup")
    remove_due(logs, NOW_MS + SET_ASIDE_MS)
    assert memory.children() == ["backup"]


def test_what_has_no_readable_time_gets_all_of_it(memory: MemoryDirectory) -> None:
    logs = with_one_set_aside(memory)
    (name,) = memory.children()
    memory.child(name).write_atomic(SET_ASIDE, b"yesterday")
    remove_due(logs, NOW_MS + 2 * SET_ASIDE_MS)
    assert memory.children() == [name]
    remove_due(logs, NOW_MS + 3 * SET_ASIDE_MS)
    assert memory.children() == []


@pytest.mark.fault("core-R1")
def test_topic_with_the_name_of_a_log_set_aside_is_served_and_stays(
    memory: MemoryDirectory,
) -> None:
    named_alike = TopicPartition(f"orders.{ID}.stray", 0)
    logs = loaded(memory)
    logs.get_or_create(named_alike, LogConfig())
    logs.close()

    logs = loaded(memory)
    assert set(logs.logs) == {named_alike}
    for weeks in range(3):
        remove_due(logs, NOW_MS + weeks * SET_ASIDE_MS)
    assert memory.children() == [str(named_alike)]


EARLIER = TopicIdentity(
    topic_id=derive_topic_id("c", "t", 100),
    is_pinned=False,
    topic_czxid=100,
    cluster_czxid=5,
    cluster_ctime_ms=1_400_000_000_000,
    topics_czxid=3,
)
LATER = attrs.evolve(EARLIER, topic_czxid=101, topic_id=derive_topic_id("c", "t", 101))


@pytest.mark.parametrize("topic", ["t", "a.b-c", "t" * 249])
def test_what_was_set_aside_is_known_by_its_topic_and_identity(
    memory: MemoryDirectory, topic: str
) -> None:
    partition = TopicPartition(topic, 7)
    logs = loaded(memory)
    (planned,) = [logs.plan(partition, LogConfig(), is_new=True, identity=EARLIER)]
    logs.make([planned])
    logs.serve([planned])
    logs.begin_setting_aside(partition, NOW_MS).run()
    (due,) = logs.find_set_aside(NOW_MS + SET_ASIDE_MS)
    assert (due.topic_partition, due.identity) == (partition, EARLIER)


def test_what_an_earlier_version_set_aside_is_known_by_its_name(memory: MemoryDirectory) -> None:
    logs = with_one_set_aside(memory)
    (name,) = memory.children()
    memory.child(name).write_atomic(SET_ASIDE, b"%d\n" % NOW_MS)
    (due,) = logs.find_set_aside(NOW_MS + SET_ASIDE_MS)
    assert (due.topic_partition, due.identity) == (T0, None)


@pytest.mark.fault("core-R1")
@pytest.mark.parametrize(
    ("identity", "topic", "has_successor", "may_go"),
    [
        (EARLIER, None, False, True),
        (None, None, False, True),
        (EARLIER, LATER, True, True),
        (EARLIER, LATER, False, False),
        (EARLIER, EARLIER, True, False),
        (None, LATER, True, False),
        (
            attrs.evolve(EARLIER, is_pinned=True),
            attrs.evolve(LATER, is_pinned=True, cluster_czxid=900),
            True,
            False,
        ),
        (EARLIER, attrs.evolve(LATER, topics_czxid=900), True, False),
    ],
    ids=[
        "no topic of the name",
        "no topic of the name, and no identity",
        "another topic, which has a log here",
        "another topic, which has no log here",
        "the topic itself: ZooKeeper did not answer when it was set aside",
        "no identity beside it: it was a guess",
        "ZooKeeper was restored since",
        "the topics' nodes were restored since",
    ],
)
def test_log_that_was_set_aside_goes_only_if_nobody_can_miss_it(
    identity: TopicIdentity | None,
    topic: TopicIdentity | None,
    has_successor: bool,
    may_go: bool,
) -> None:
    log = SetAsideLog("/d", "t.stray-0", T0, identity)
    assert log.may_be_removed(topic, has_successor=has_successor) is may_go


def two_disks(first: TopicIdentity | None, second: TopicIdentity | None) -> list[MemoryDirectory]:
    """Two disks, each with a log of the partition, of these topics."""
    disks = [MemoryDirectory("one"), MemoryDirectory("two")]
    for disk, identity in zip(disks, (first, second), strict=True):
        logs = loaded(disk)
        planned = [logs.plan(T0, LogConfig(), is_new=True, identity=identity)]
        logs.make(planned)
        logs.serve(planned)
        logs.close()
    return disks


@pytest.mark.fault("core-R1")
@pytest.mark.parametrize("later_is_first", [True, False])
def test_of_two_logs_of_a_name_that_of_the_earlier_topic_is_set_aside_by_the_start(
    later_is_first: bool,
) -> None:
    """A disk was away when the topic was deleted and created again: the log came to another."""
    pair = (LATER, EARLIER) if later_is_first else (EARLIER, LATER)
    disks = two_disks(*pair)
    for _ in range(2):
        logs = LogManager(disks, LogConfig(), lambda: 0)
        logs.load()
        assert logs.logs[T0].identity == LATER
        assert [len(log_dir.logs) for log_dir in logs.dirs] == [later_is_first, not later_is_first]
        logs.checkpoint_recovery_points()
        logs.close()

    # Its week begins when somebody looks.
    logs = LogManager(disks, LogConfig(), lambda: 0)
    logs.load()
    assert logs.find_set_aside(NOW_MS) == []
    (due,) = logs.find_set_aside(NOW_MS + SET_ASIDE_MS)
    assert (due.topic_partition, due.identity) == (T0, EARLIER)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (EARLIER, EARLIER),
        (EARLIER, None),
        (None, LATER),
        (EARLIER, attrs.evolve(LATER, cluster_czxid=900)),
    ],
    ids=["one topic", "first known", "second known", "of two ZooKeepers"],
)
def test_two_logs_of_which_nobody_can_say_which_is_newer_are_refused(
    first: TopicIdentity | None, second: TopicIdentity | None
) -> None:
    disks = two_disks(first, second)
    logs = LogManager(disks, LogConfig(), lambda: 0)
    with pytest.raises(
        LogDirectoryError, match=r"t-0 is in two directories.*/one/t-0 ends at .*/two/t-0 ends"
    ):
        logs.load()
    assert all("t-0" in disk.children() for disk in disks)
