"""What it means that a query's group is not as the query left it; and who made a commit."""

import pytest

from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.commit_metadata import (
    MOST_BYTES,
    Run,
    check_metadata,
    find_newest_run,
    find_run,
    is_by_query,
    is_initial,
    make_metadata,
    start_run,
)
from spark_connector.foreign_commits import (
    ForeignCommits,
    find_ahead,
    find_foreign,
    find_moved_before,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIER, OWN, LATER = Run(100, "aaaa"), Run(200, "bbbb"), Run(300, "cccc")


def at(offset: int, run: Run | None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, make_metadata("spark", run) if run else "")


@pytest.mark.parametrize(
    ("committed_now", "foreign"),
    [
        # As this run left it, or its listener after the batch.
        ({T0: at(5, OWN), T1: at(5, OWN)}, ForeignCommits()),
        ({T0: at(9, OWN), T1: at(5, OWN)}, ForeignCommits()),
        ({T0: at(5, EARLIER), T1: at(5, OWN)}, ForeignCommits(earlier=EARLIER)),
        ({T0: at(5, LATER), T1: at(5, OWN)}, ForeignCommits(later=LATER)),
        ({T0: at(5, EARLIER), T1: at(5, LATER)}, ForeignCommits(earlier=EARLIER, later=LATER)),
        ({T0: at(0, None), T1: at(5, OWN)}, ForeignCommits(moved={T0: 0})),
        ({T0: at(99, None), T1: at(0, EARLIER)}, ForeignCommits(earlier=EARLIER, moved={T0: 99})),
        ({T1: at(5, OWN)}, ForeignCommits(moved={T0: None})),
        # Who commits just what the query commits next moves nothing.
        ({T0: at(7, None), T1: at(5, OWN)}, ForeignCommits()),
    ],
)
def test_commits_that_are_not_the_runs_own_are_told_apart(
    committed_now: dict[TopicPartition, OffsetAndMetadata], foreign: ForeignCommits
) -> None:
    assert find_foreign(OWN, {T0: 5, T1: 5}, {T0: 7, T1: 5}, committed_now) == foreign


def test_partitions_that_the_run_has_not_committed_yet_do_not_count() -> None:
    assert find_foreign(OWN, {T0: 5}, {T0: 5, T1: 0}, {T0: at(5, OWN), T1: at(3, None)}) == (
        ForeignCommits()
    )


def test_at_its_start_a_query_accepts_other_queries_and_nobody_else() -> None:
    place = {T0: 5, T1: 5}
    for run in (EARLIER, LATER):
        committed = {T0: at(3, run), T1: at(8, run)}
        assert find_moved_before("spark", place, committed) == {}
        assert find_ahead("spark", place, committed) == {T1: 8}
    committed = {T0: at(3, None), T1: at(8, None)}
    assert find_moved_before("spark", place, committed) == {T0: 3, T1: 8}
    assert find_ahead("spark", place, committed) == {}


def test_metadata_names_run_query_and_batch() -> None:
    metadata = make_metadata("my note", OWN, "late flights", 7)
    assert metadata == "my note run=200-bbbb query=late_flights batch=7"
    assert find_run(metadata) == OWN
    assert make_metadata("", OWN) == "run=200-bbbb"
    assert len(make_metadata("x" * MOST_BYTES, OWN, "q" * 5_000, 10**18).encode()) <= 4_096


def test_the_newest_run_is_the_one_that_began_last() -> None:
    texts = ["spark", make_metadata("spark", LATER), make_metadata("initial", EARLIER), ""]
    assert find_newest_run(texts) == LATER
    assert find_newest_run(["spark"]) is None
    assert start_run(50, "dddd", LATER) == Run(301, "dddd")
    assert start_run(500, "dddd", LATER) == Run(500, "dddd")
    assert start_run(50, "dddd", None) == Run(50, "dddd")


@pytest.mark.parametrize(
    ("metadata", "own_text", "by_query"),
    [
        ("spark run=200-bbbb", "other", True),
        ("initial run=200-bbbb", "spark", True),
        ("initial", "spark", True),
        ("spark", "spark", True),
        ("", "spark", False),
        ("", "", False),
        ("note", "spark", False),
        ("rerun=200-bbbb", "spark", False),
        ("run=200-xyz", "spark", False),
    ],
)
def test_a_commit_is_a_querys_if_it_has_a_run_or_is_of_an_older_version(
    metadata: str, own_text: str, by_query: bool
) -> None:
    assert is_by_query(metadata, own_text) is by_query


def test_only_the_first_word_marks_a_first_position() -> None:
    assert is_initial("initial")
    assert is_initial("initial run=200-bbbb")
    assert not is_initial("initially")
    assert not is_initial("spark initial")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("initial", "begins with initial"),
        ("initial place", "begins with initial"),
        ("my run=200-bbbb", "has run="),
        ("x" * (MOST_BYTES + 1), "more than 3072 bytes"),
    ],
)
def test_a_text_that_would_pass_for_the_querys_own_marks_is_refused(text: str, reason: str) -> None:
    assert reason in (check_metadata(text) or "")
