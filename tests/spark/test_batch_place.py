"""What the listener commits at the end of a batch, and how far behind the query is then."""

import pytest

from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.batch_place import commit_batch_end, find_records
from spark_connector.behind_latest import BehindLatest, find_behind_latest
from spark_connector.stream_offset import from_json_text
from tests.spark.fake_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RUN = "run=200-bbbb"
NOTE = f"spark {RUN} query=q batch=7"


@pytest.mark.parametrize(
    ("committed_now", "committed"),
    [
        # Where the group is behind, under the run that is there.
        ({T0: (3, f"spark {RUN}"), T1: (5, f"spark {RUN}")}, {T0: (9, NOTE)}),
        ({T0: (3, f"initial {RUN}")}, {T0: (9, NOTE), T1: (5, NOTE)}),
        # Never back.
        ({T0: (9, f"spark {RUN}"), T1: (8, f"spark {RUN}")}, {}),
        # Never over what somebody else has committed: the planning process decides about that.
        ({T0: (3, ""), T1: (0, f"spark {RUN}")}, {T1: (5, NOTE)}),
        # The planning process could not commit, so there is no run.
        ({}, {T0: (9, "spark query=q batch=7"), T1: (5, "spark query=q batch=7")}),
    ],
)
def test_the_end_of_a_batch_is_committed_where_the_group_is_behind_it(
    committed_now: dict[TopicPartition, tuple[int, str]],
    committed: dict[TopicPartition, tuple[int, str]],
) -> None:
    there = {p: OffsetAndMetadata(*place) for p, place in committed_now.items()}
    records = find_records({T0: 9, T1: 5}, there, "spark", "q", 7)
    assert records == {p: OffsetAndMetadata(*place) for p, place in committed.items()}


def test_a_group_that_is_up_to_date_gets_no_commit() -> None:
    brokers = FakeBrokers({T0: [0, 9]})
    commit_batch_end(brokers, "g", {T0: 9}, "spark", "q", 1)
    commit_batch_end(brokers, "g", {T0: 9}, "spark", "q", 1)
    assert len(brokers.commits) == 1


def test_a_query_is_behind_by_what_is_between_its_batchs_end_and_the_logs_ends() -> None:
    behind = find_behind_latest({T0: 9, T1: 5}, {T0: 12, T1: 5})
    assert behind == BehindLatest({T0: 3, T1: 0})
    assert behind.total == 3
    assert behind.metrics == {
        "avgOffsetsBehindLatest": "1.5",
        "maxOffsetsBehindLatest": "3",
        "minOffsetsBehindLatest": "0",
    }


def test_a_log_that_was_truncated_is_not_behind_and_a_deleted_one_does_not_count() -> None:
    assert find_behind_latest({T0: 9, T1: 5}, {T0: 4}) == BehindLatest({T0: 0})
    assert find_behind_latest({T0: 9}, {}) is None


def test_a_progress_of_another_source_has_no_place() -> None:
    assert from_json_text('{"t": {"0": 3}}') == {T0: 3}
    for text in (None, "7", "not json", '{"logOffset": 3}'):
        assert from_json_text(text) == {}
