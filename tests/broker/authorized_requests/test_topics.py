"""Requests about topics with an authorizer: the error of each refusal, and what it must not reveal.

Each row of a table is a request and a permission that is taken away. A request that names several
topics is sent with one that is allowed and one that is not: the first is served, and the response
about the second is the same whether or not it exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from broker.network.authorization import CLUSTER, topic
from clients.errors import ConnectionFailed
from clients.transport.connection import Connection
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.authorized_requests.requests import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    list_offsets,
    list_offsets_at_time,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    produce_compressed,
    produce_old,
)
from tests.broker.authorized_requests.stage import MISSING, TOPIC_FAILED, Stage, errors, text_of

NEEDS_CLUSTER = {
    offset_for_leader_epoch: (Operation.CLUSTER_ACTION, CLUSTER),
    create_topics: (Operation.CREATE, CLUSTER),
}
"""A permission of the cluster that allows all topics, and is taken away too."""

OF_TOPICS = [
    (produce, Operation.WRITE, None),
    (produce_compressed, Operation.WRITE, None),
    (produce_old, Operation.WRITE, 2),
    (fetch, Operation.READ, None),
    (fetch, Operation.READ, 3),
    (list_offsets, Operation.DESCRIBE, None),
    (list_offsets_at_time, Operation.DESCRIBE, None),
    (list_offsets, Operation.DESCRIBE, 0),
    (metadata, Operation.DESCRIBE, None),
    (offset_commit, Operation.READ, None),
    (offset_commit, Operation.READ, 0),
    (offset_fetch, Operation.DESCRIBE, None),
    (offset_fetch, Operation.DESCRIBE, 0),
    (offset_delete, Operation.READ, None),
    (offset_for_leader_epoch, Operation.DESCRIBE, None),
    (delete_records, Operation.DELETE, None),
    (delete_topics, Operation.DELETE, None),
    (create_partitions, Operation.ALTER, None),
    (describe_configs, Operation.DESCRIBE_CONFIGS, None),
    (alter_configs, Operation.ALTER_CONFIGS, None),
    (incremental_alter_configs, Operation.ALTER_CONFIGS, None),
]


@pytest.mark.parametrize(("build", "operation", "version"), OF_TOPICS)
def test_refused_topic_gets_the_error_and_the_other_is_served(
    stage: Stage, build: Callable[..., Any], operation: Operation, version: int | None
) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    stage.call(offset_commit(allowed, refused))
    stage.call(offset_commit(allowed, refused), version=0)
    permissions = [(operation, topic(refused)), (operation, topic(MISSING))]
    if build in NEEDS_CLUSTER:
        permissions.append(NEEDS_CLUSTER[build])

    # A missing topic and an existing one get the same response.
    existing = stage.call(build(refused), *permissions, version=version)
    missing = stage.call(build(MISSING), *permissions, version=version)
    assert text_of(existing, refused) == text_of(missing, MISSING)
    assert errors(existing)[refused] == TOPIC_FAILED

    together = errors(stage.call(build(refused, allowed), *permissions, version=version))
    assert together.pop("", ErrorCode.NONE) == ErrorCode.NONE
    assert together == {refused: TOPIC_FAILED, allowed: ErrorCode.NONE}


def test_topic_may_be_created_with_either_permission(stage: Stage) -> None:
    existing = stage.new_topic()
    of_cluster = (Operation.CREATE, CLUSTER)
    names = ("created-1", "refused", existing)
    of_topics = [(Operation.CREATE, topic(name)) for name in names[1:]]
    created = errors(stage.call(create_topics(*names), of_cluster, *of_topics))
    assert created == {
        "created-1": ErrorCode.NONE,
        "refused": TOPIC_FAILED,
        existing: TOPIC_FAILED,
    }
    assert set(errors(stage.call(create_topics("created-2"), *of_topics)).values()) == {
        ErrorCode.NONE
    }


def test_topic_named_twice_is_an_invalid_request_before_it_is_refused(stage: Stage) -> None:
    permissions = [(Operation.CREATE, CLUSTER), (Operation.CREATE, topic("twice"))]
    created = errors(stage.call(create_topics("twice", "twice"), *permissions))
    assert created == {"twice": ErrorCode.INVALID_REQUEST}


def test_missing_topic_is_created_by_metadata_with_either_permission(stage: Stage) -> None:
    of_cluster = (Operation.CREATE, CLUSTER)
    of_topic = (Operation.CREATE, topic("automatic"))
    request = metadata("automatic", creates=True)
    assert errors(stage.call(request, of_cluster, of_topic)) == {"automatic": TOPIC_FAILED}
    existing = stage.call(MetadataRequest(topics=None)).topics
    assert "automatic" not in [entry.name for entry in existing]
    created = errors(stage.call(request, of_cluster))
    assert created == {"automatic": ErrorCode.LEADER_NOT_AVAILABLE}


def test_topics_that_may_not_be_described_are_left_out_of_all(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    response = stage.call(MetadataRequest(topics=None), (Operation.DESCRIBE, topic(refused)))
    names = [entry.name for entry in response.topics]
    assert allowed in names
    assert refused not in names
    names = [entry.name for entry in stage.call(MetadataRequest(topics=None)).topics]
    assert refused in names


def test_offsets_of_topics_that_may_not_be_described_are_left_out_of_all(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()
    group_id = stage.new_group(allowed, refused)
    request = OffsetFetchRequest(group_id=group_id, topics=None)
    response = stage.call(request, (Operation.DESCRIBE, topic(refused)))
    assert [entry.name for entry in response.topics] == [allowed]


def test_nothing_is_appended_to_a_refused_topic(stage: Stage) -> None:
    name = stage.new_topic()
    for build, version in ((produce, None), (produce_compressed, None), (produce_old, 2)):
        stage.call(build(name), (Operation.WRITE, topic(name)), version=version)
    (of_topic,) = stage.call(list_offsets(name)).topics
    assert of_topic.partitions[0].offset == 1


def test_refused_produce_without_a_response_ends_the_connection(stage: Stage) -> None:
    request = attrs.evolve(produce("any"), acks=0)

    async def send_two() -> None:
        host, _, port = stage.broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            await connection.call(request)
            await connection.call(metadata())
        finally:
            await connection.close()

    stage.authorizer.refused.add((Operation.WRITE, topic("any")))
    try:
        with pytest.raises(ConnectionFailed):
            stage.runner.run(send_two())
    finally:
        stage.authorizer.refused.clear()


def test_session_serves_its_allowed_topics_and_repeats_the_refusal(stage: Stage) -> None:
    allowed, refused = stage.new_topic(), stage.new_topic()

    async def fetch_three_times() -> list[Any]:
        # A session ends with its connection.
        host, _, port = stage.broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            stage.authorizer.refused.add((Operation.READ, topic(refused)))
            first = await connection.call(fetch(allowed, refused, session=(0, 0)))
            again = await connection.call(fetch(session=(first.session_id, 1)))
            stage.authorizer.refused.clear()
            return [first, again, await connection.call(fetch(session=(first.session_id, 2)))]
        finally:
            stage.authorizer.refused.clear()
            await connection.close()

    first, again, served = stage.runner.run(fetch_three_times())
    assert errors(first) == {
        "": ErrorCode.NONE,
        allowed: ErrorCode.NONE,
        refused: TOPIC_FAILED,
    }
    assert errors(again)[refused] == TOPIC_FAILED
    # With the permission back the session goes on.
    assert errors(served)[refused] == ErrorCode.NONE


def test_fetch_of_refused_topics_alone_does_not_wait(stage: Stage) -> None:
    name = stage.new_topic()
    request = attrs.evolve(fetch(name, session=(0, 0)), max_wait_ms=15_000)
    started = stage.runner.get_loop().time()
    stage.call(request, (Operation.READ, topic(name)))
    assert stage.runner.get_loop().time() - started < 10
