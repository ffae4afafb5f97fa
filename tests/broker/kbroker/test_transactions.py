"""`kbroker transactions`: which partitions it searches, and what it refuses before it asks."""

import attrs
import pytest
from click.testing import CliRunner

from broker.kbroker.command import main
from broker.kbroker.transactions import SearchScope
from clients.admin import TopicDescription
from clients.cluster_view import PartitionView
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ON_0_AND_1 = PartitionView(0, 5, (0, 1), (0, 1))
ON_1_AND_2 = PartitionView(1, 5, (1, 2), (1, 2))
TOPICS = [
    TopicDescription("u", False, {0: ON_1_AND_2}),
    TopicDescription("t", False, {0: ON_0_AND_1, 1: ON_1_AND_2}),
]


@pytest.mark.parametrize(
    ("scope", "partitions"),
    [
        (SearchScope(None, None, None), [T0, T1, U0]),
        (SearchScope(None, None, 0), [T0]),
        (SearchScope(None, None, 2), [T1, U0]),
        (SearchScope(None, None, 9), []),
    ],
)
def test_partitions_are_searched_on_one_broker_or_everywhere(
    scope: SearchScope, partitions: list[TopicPartition]
) -> None:
    assert scope.choose(TOPICS) == partitions


def test_one_partition_is_searched_and_must_exist() -> None:
    scope = SearchScope("t", 1, 2)
    assert scope.choose(TOPICS[1:]) == [T1]
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION: t-1 on broker 0"):
        attrs.evolve(scope, broker_id=0).choose(TOPICS[1:])
    with pytest.raises(ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION: t-7$"):
        SearchScope("t", 7, None).choose(TOPICS[1:])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("describe", "say which: ID, or --transactional-id ID"),
        ("describe-producers --topic t", "Missing option '--partition'"),
        ("find-hanging --partition 0", "--partition needs the --topic"),
        ("list --state Ongo", "'Ongo' is not one of"),
        ("abort --topic t --partition 0", "say which: --start-offset, or --producer-id"),
        ("abort --topic t --partition 0 --start-offset 1 --producer-id 2", "say which:"),
        ("abort --topic t --partition 0 --producer-id 2", "needs --producer-epoch and --coordi"),
        ("abort --topic t --partition 0 --start-offset 1 --producer-epoch 2", "leave them out"),
        ("abort --topic t --partition -1 --start-offset 1", "-1 is not in the range"),
    ],
)
def test_wrong_usage_is_named(line: str, message: str) -> None:
    ran = CliRunner().invoke(main, ["transactions", *line.split()])
    assert ran.exit_code == 2, ran.output
    assert message in ran.output


def test_kafkas_place_for_the_address_is_before_the_name_of_the_action() -> None:
    line = "transactions --bootstrap-server h:1 describe-producers --topic t"
    ran = CliRunner().invoke(main, line.split())
    assert (ran.exit_code, "Missing option '--partition'" in ran.output) == (2, True)
