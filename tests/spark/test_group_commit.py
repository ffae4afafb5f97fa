import logging

import attrs
import pytest

from clients.errors import NoBrokersAvailable
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.commit_metadata import Run as ProcessRun
from spark_connector.commit_metadata import find_run, make_metadata
from spark_connector.group_commit import KEEP_ALIVE_S, RETRY_S, GroupCommit, GroupMoved
from tests.spark.fake_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@attrs.define(eq=False)
class Run:
    """A run of a query's planning process, on brokers that outlive it."""

    brokers: FakeBrokers
    now_s: float = 1000.0
    on_reset: str = "warn"
    group: GroupCommit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.group = GroupCommit(
            self.brokers,
            "g",
            "note",
            lambda: self.now_s,
            lambda: int(self.now_s * 1000),
            on_reset=self.on_reset,
        )

    @property
    def held(self) -> dict[TopicPartition, tuple[int, str]]:
        """The group's offsets, with their metadata before the run."""
        held = self.brokers.groups.get("g", {})
        return {p: (of.offset, of.metadata.split(" run=")[0]) for p, of in held.items()}

    @property
    def runs(self) -> set[ProcessRun | None]:
        return {find_run(of.metadata) for of in self.brokers.groups["g"].values()}

    def listen(self, partition: TopicPartition, offset: int) -> None:
        """Commit as the listener does, under the run that is there."""
        (process,) = self.runs
        metadata = make_metadata("note", process, "q", 1)
        self.brokers.groups["g"][partition] = OffsetAndMetadata(offset, metadata)

    def reset(self, partition: TopicPartition, offset: int) -> None:
        self.brokers.groups["g"][partition] = OffsetAndMetadata(offset, "")


@pytest.fixture
def run() -> Run:
    return Run(FakeBrokers({T0: [0, 100], T1: [0, 100]}))


def test_a_first_position_is_marked_initial_and_found_again(run: Run) -> None:
    run.group.begin({T0: 5, T1: 7})
    assert run.held == {T0: (5, "initial"), T1: (7, "initial")}
    assert Run(run.brokers).group.read_initial([T0, T1]) == {T0: 5, T1: 7}


def test_a_first_position_is_history_once_a_batch_was_committed(run: Run) -> None:
    run.group.begin({T0: 5, T1: 7})
    run.group.mirror({T0: 6, T1: 7})
    assert run.held == {T0: (6, "note"), T1: (7, "note")}
    assert Run(run.brokers).group.read_initial([T0, T1]) == {}


def test_a_query_still_at_its_first_position_commits_nothing_over_it(run: Run) -> None:
    run.group.begin({T0: 5, T1: 7})
    run.group.mirror({T0: 5, T1: 7})
    run.now_s += KEEP_ALIVE_S
    run.group.mirror({T0: 5, T1: 7})
    assert len(run.brokers.commits) == 2
    assert Run(run.brokers).group.read_initial([T0, T1]) == {T0: 5, T1: 7}


def test_the_same_place_is_committed_again_only_to_keep_it_alive(run: Run) -> None:
    run.group.mirror({T0: 5})
    run.now_s += KEEP_ALIVE_S - 1
    run.group.mirror({T0: 5})
    assert len(run.brokers.commits) == 1
    run.now_s += 1
    run.group.mirror({T0: 5})
    assert len(run.brokers.commits) == 2


def test_a_second_chance_never_moves_the_group_back(run: Run) -> None:
    run.group.mirror({T0: 5, T1: 5})
    run.group.mirror_no_less({T0: 6, T1: 4})
    assert run.held == {T0: (5, "note"), T1: (5, "note")}
    run.group.mirror_no_less({T0: 6, T1: 5})
    assert run.held == {T0: (6, "note"), T1: (5, "note")}


def test_a_failed_commit_is_logged_counted_and_made_up_for(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.brokers.failing = True
    with caplog.at_level(logging.WARNING):
        run.group.mirror({T0: 5})
    assert run.group.failures == 1
    assert "group g: commit failed (1 so far): nobody is there" in caplog.text
    run.brokers.failing = False
    run.group.mirror({T0: 6})
    assert run.held == {}
    run.now_s += RETRY_S
    run.group.mirror({T0: 6})
    assert run.held == {T0: (6, "note")}


def test_a_first_position_that_cannot_be_committed_fails_the_query(run: Run) -> None:
    run.brokers.failing = True
    with pytest.raises(NoBrokersAvailable):
        run.group.begin({T0: 5})


def test_a_group_in_use_is_refused_with_its_members_named(run: Run) -> None:
    run.brokers.members["g"] = ("app-1", "app-2")
    with pytest.raises(SettingError, match=r"commit\.group\.id: .* 2 members \(app-1, app-2\)"):
        run.group.read_initial([T0])
    with pytest.raises(SettingError, match=r"commit\.group\.id"):
        Run(run.brokers).group.mirror({T0: 5})
    assert run.held == {}


def test_a_group_moved_by_someone_else_is_put_back_with_a_warning(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.group.mirror({T0: 5, T1: 5})
    run.reset(T1, 90)
    with caplog.at_level(logging.WARNING):
        run.group.mirror({T0: 6, T1: 6})
    assert "group g: t-1 at offset 90 was moved by someone else; overwriting" in caplog.text
    assert run.held == {T0: (6, "note"), T1: (6, "note")}


@pytest.mark.parametrize(
    ("on_reset", "advice"),
    [("fail", "Spark's checkpoint cannot follow"), ("follow", "delete the checkpoint and start")],
)
def test_a_group_moved_by_someone_else_ends_a_query_that_asked_for_it(
    on_reset: str, advice: str
) -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset=on_reset)
    run.group.mirror({T0: 5})
    run.reset(T0, 90)
    with pytest.raises(GroupMoved, match=f"t-0 at offset 90 was moved by someone else; {advice}"):
        run.group.mirror({T0: 6})
    assert run.held == {T0: (90, "")}


def test_a_group_that_is_deleted_while_the_query_runs_was_moved() -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset="fail")
    run.group.mirror({T0: 5})
    del run.brokers.groups["g"][T0]
    with pytest.raises(GroupMoved, match="t-0 at no offset was moved by someone else"):
        run.group.mirror({T0: 6})


def test_a_group_moved_while_the_query_was_stopped_ends_it_even_if_it_was_moved_back() -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset="fail")
    run.group.mirror({T0: 40})
    run.reset(T0, 0)
    with pytest.raises(GroupMoved, match="t-0 at offset 0 was moved by someone else"):
        Run(run.brokers, on_reset="fail").group.mirror({T0: 50})


def test_a_restart_from_a_checkpoint_puts_the_group_where_the_checkpoint_is(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.group.mirror({T0: 50, T1: 3})
    with caplog.at_level(logging.WARNING):
        Run(run.brokers, on_reset="fail").group.mirror({T0: 40, T1: 9})
    assert "group g: t-0 at offset 50 is ahead of Spark's checkpoint; overwriting" in caplog.text
    assert run.held == {T0: (40, "note"), T1: (9, "note")}


def test_a_restart_before_the_last_batch_was_committed_is_no_reset() -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset="fail")
    run.group.mirror({T0: 40})
    Run(run.brokers, on_reset="fail").group.mirror({T0: 50})
    assert run.held == {T0: (50, "note")}


def test_what_a_version_without_runs_has_committed_is_no_reset() -> None:
    run = Run(FakeBrokers({T0: [0, 100], T1: [0, 100]}), on_reset="fail")
    run.brokers.groups["g"] = {
        T0: OffsetAndMetadata(4, "note"),
        T1: OffsetAndMetadata(4, "initial"),
    }
    run.group.mirror({T0: 50, T1: 50})
    assert run.held == {T0: (50, "note"), T1: (50, "note")}


def test_a_run_is_later_than_the_one_before_it_whatever_its_clock_says(run: Run) -> None:
    run.group.mirror({T0: 5})
    (first,) = run.runs
    Run(run.brokers, now_s=run.now_s - 500).group.mirror({T0: 6})
    (second,) = run.runs
    assert first is not None
    assert second is not None
    assert second > first


def test_the_listeners_commits_are_the_runs_own_and_stay_as_they_are() -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset="fail")
    run.group.mirror({T0: 5})
    run.listen(T0, 9)
    by_listener = dict(run.brokers.groups["g"])
    commits = len(run.brokers.commits)

    run.group.mirror({T0: 9})
    assert len(run.brokers.commits) == commits
    run.now_s += KEEP_ALIVE_S
    run.group.mirror({T0: 9})
    assert run.brokers.commits[commits:] == [by_listener]


def test_a_reset_behind_what_the_listener_committed_is_noticed() -> None:
    run = Run(FakeBrokers({T0: [0, 100]}), on_reset="fail")
    run.group.begin({T0: 0})
    run.listen(T0, 9)
    run.reset(T0, 0)
    with pytest.raises(GroupMoved, match="t-0 at offset 0"):
        run.group.mirror({T0: 9})
