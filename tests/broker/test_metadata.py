"""Metadata: responses from the cache, in each version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import metadata
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.network.session import ANONYMOUS
from protocol.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.encoding import Encoded, decode, encode
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_response
from protocol.messages.metadata import (
    NO_TOPIC_ID,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
)
from protocol.special_values import LEADER_DURING_DELETE
from tests.broker.replication.replicas import Replicas, context, update_metadata
from tests.stage.authorizer import AskingAuthorizer, AskingPermissions

NEWEST = 11


@attrs.frozen(eq=False)
class KeptSender:
    """A sender whose permissions are the same object each time."""

    view: AskingPermissions

    def permissions(self, operation: Operation, kind: ResourceType) -> AskingPermissions:
        assert (operation, kind) == (Operation.DESCRIBE, ResourceType.TOPIC)
        return self.view

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        raise AssertionError("metadata asks for topics by name")


@attrs.define(eq=False)
class MetadataStage:
    """The handler, its cache, and the topics that it created."""

    cache: MetadataCache = attrs.field(factory=MetadataCache)
    all_topics: metadata.AllTopics = attrs.field(factory=metadata.AllTopics)
    replicas: Replicas = attrs.field(factory=Replicas)
    created: list[str] = attrs.field(factory=list)
    refuses: ErrorCode | None = None

    def update(self, *args: Any, **kwargs: Any) -> MetadataStage:
        self.cache.update(update_metadata(*args, **kwargs))
        return self

    def create(self, name: str) -> None:
        if self.refuses is not None:
            raise ApiError(self.refuses, name)
        self.created.append(name)

    def ask(
        self,
        *names: str,
        every: bool = False,
        version: int = NEWEST,
        may_create: bool = True,
        auto_create: bool = True,
    ) -> MetadataResponse:
        metadata_request = MetadataRequest(
            topics=None if every else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=may_create,
        )
        create = self.create if auto_create else None
        response = self.handle(metadata_request, context(version), create)
        if isinstance(response, Encoded):
            decoded, _ = decode(response.kind, version, response.body)
            assert isinstance(decoded, MetadataResponse)
            return decoded
        assert isinstance(response, MetadataResponse)
        return response

    def handle(
        self,
        metadata_request: MetadataRequest,
        request_context: RequestContext,
        create: Callable[[str], None] | None = None,
    ) -> Any:
        deferred = self.replicas.deferred
        return metadata.handle(
            self.cache,
            self.all_topics,
            "cluster",
            create,
            deferred,
            metadata_request,
            request_context,
        )


def codes(response: MetadataResponse) -> dict[str, ErrorCode]:
    return {topic.name: ErrorCode.of(topic.error_code) for topic in response.topics}


def only(response: MetadataResponse) -> MetadataResponsePartition:
    ((partition,),) = [topic.partitions for topic in response.topics]
    return partition


def test_brokers_are_named_with_the_address_of_the_listener_asked_over() -> None:
    stage = MetadataStage()
    tls = UpdateMetadataRequestEndpoint(port=1, host="h", listener="SSL", security_protocol=1)
    plain = UpdateMetadataRequestEndpoint(
        port=2, host="h", listener="PLAINTEXT", security_protocol=0
    )
    brokers = [
        UpdateMetadataRequestLiveBroker(id=0, endpoints=[tls, plain], rack="r"),
        UpdateMetadataRequestLiveBroker(id=1, endpoints=[tls]),
    ]
    stage.cache.update(
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers)
    )
    response = stage.ask()
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [(0, "h", 2, "r")]
    assert (response.controller_id, response.cluster_id) == (1, "cluster")


def test_before_the_controller_has_spoken_there_is_none() -> None:
    response = MetadataStage().ask(every=True)
    assert (response.controller_id, list(response.brokers), list(response.topics)) == (-1, [], [])


def test_a_partition_is_described_as_the_controller_told_it() -> None:
    stage = MetadataStage().update("t", leader=1, isr=(1,), replicas=(0, 1), epoch=4)
    partition = only(stage.ask("t"))
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 4)
    assert (partition.replica_nodes, partition.isr_nodes) == ((0, 1), (1,))


def test_partitions_come_in_their_order() -> None:
    stage = MetadataStage()
    for index in (2, 0, 1):
        state = update_metadata("t", 3).topic_states[0].partition_states[index]
        request = update_metadata("t", 0)
        topic = attrs.evolve(request.topic_states[0], partition_states=[state])  # type: ignore[misc]
        stage.cache.update(attrs.evolve(request, topic_states=[topic]))  # type: ignore[misc]
    assert [p.partition_index for p in stage.ask("t").topics[0].partitions] == [0, 1, 2]


def test_all_topics_are_asked_for_by_null() -> None:
    stage = MetadataStage().update("t").update("u")
    assert set(codes(stage.ask(every=True))) == {"t", "u"}


def test_in_the_oldest_version_no_topic_means_all() -> None:
    stage = MetadataStage().update("t").update("u")
    assert set(codes(stage.ask(version=0))) == {"t", "u"}


def test_later_no_topic_means_none() -> None:
    assert codes(MetadataStage().update("t").ask(version=1)) == {}


def test_a_topic_asked_for_twice_is_answered_once() -> None:
    assert len(MetadataStage().update("t").ask("t", "t").topics) == 1


def test_internal_topics_are_marked() -> None:
    response = MetadataStage().update("__consumer_offsets").update("t").ask(every=True)
    assert {topic.name: topic.is_internal for topic in response.topics} == {
        "__consumer_offsets": True,
        "t": False,
    }


def test_a_missing_topic_is_created_and_its_leader_is_yet_to_come() -> None:
    stage = MetadataStage().update("other")
    assert codes(stage.ask("new")) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
    assert stage.created == ["new"]


@pytest.mark.parametrize("how", [{"may_create": False}, {"auto_create": False}], ids=str)
def test_a_missing_topic_that_may_not_be_created_is_unknown(how: dict[str, bool]) -> None:
    stage = MetadataStage().update("other")
    assert codes(stage.ask("new", **how)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert stage.created == []


def test_a_broker_that_has_been_told_of_nothing_yet_denies_no_topic_and_creates_none() -> None:
    stage = MetadataStage()
    assert codes(stage.ask("there")) == {"there": ErrorCode.LEADER_NOT_AVAILABLE}
    assert stage.created == []


def test_why_a_topic_cannot_be_created_is_said_and_the_others_are_answered() -> None:
    stage = MetadataStage(refuses=ErrorCode.INVALID_TOPIC_EXCEPTION).update("t")
    assert codes(stage.ask("a b", "t")) == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": ErrorCode.NONE,
    }


def test_asking_for_all_topics_creates_none() -> None:
    stage = MetadataStage()
    stage.ask(every=True)
    assert stage.created == []


@pytest.mark.parametrize("version", range(NEWEST + 1))
@pytest.mark.parametrize("leader", [-1, 9])
def test_a_leader_that_does_not_live_is_not_named(leader: int, version: int) -> None:
    stage = MetadataStage().update("t", leader=leader, isr=(9,), replicas=(0, 9))
    partition = only(stage.ask("t", version=version))
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    # Who was in sync last may lead again; version 0 names only brokers that live.
    assert (partition.leader_id, partition.isr_nodes) == (-1, (9,) if version else ())


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_listener_is_told_apart_from_version_six_on(
    version: int, code: ErrorCode
) -> None:
    stage = MetadataStage().update("t", leader=0)
    metadata_request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    elsewhere = context(version)._replace(listener="OTHER")
    response = stage.handle(metadata_request, elsewhere)
    assert isinstance(response, MetadataResponse)
    assert (only(response).error_code, only(response).leader_id) == (code, -1)


def test_the_oldest_version_names_only_brokers_that_live() -> None:
    stage = MetadataStage().update("t", leader=0, isr=(0, 9), replicas=(0, 8, 9))
    partition = only(stage.ask("t", version=0))
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (0, (0,), (0,))


def test_the_oldest_version_names_only_brokers_that_live_though_the_leader_does_not() -> None:
    stage = MetadataStage().update("t", leader=9, isr=(9,), replicas=(0, 9))
    partition = only(stage.ask("t", version=0))
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.replica_nodes, partition.isr_nodes) == ((0,), ())


def test_later_versions_name_brokers_that_do_not_live_without_an_error() -> None:
    stage = MetadataStage().update("t", leader=0, isr=(0, 9), replicas=(0, 9))
    partition = only(stage.ask("t", version=1))
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.NONE, (0, 9))
    assert partition.isr_nodes == (0, 9)


def test_a_topic_has_no_id_and_none_can_be_asked_for_by_one() -> None:
    stage = MetadataStage().update("t")
    (topic,) = stage.ask("t").topics
    assert topic.topic_id == NO_TOPIC_ID

    for asked in (
        MetadataRequestTopic(name=None, topic_id=b"i" * 16),
        MetadataRequestTopic(name="t", topic_id=b"i" * 16),
        MetadataRequestTopic(name=None),
    ):
        with pytest.raises(ApiError) as refused:
            stage.handle(MetadataRequest(topics=[asked]), context(NEWEST))
        assert refused.value.code == ErrorCode.INVALID_REQUEST


# ---- all topics, kept encoded


def test_what_is_kept_says_what_each_topic_asked_for_alone_is_told() -> None:
    stage = MetadataStage().update("t", 3).update("u")
    for version in range(NEWEST + 1):
        alone = encode(stage.ask("t", "u", version=version), version)
        assert encode(stage.ask(every=True, version=version), version) == alone


def test_all_topics_are_encoded_once_for_each_version_until_the_metadata_changes() -> None:
    stage = MetadataStage().update("t")
    for _ in range(10):
        stage.ask(every=True)
        stage.ask(every=True, version=1)
        stage.ask("t")
    assert stage.all_topics.encodings == 2
    stage.update("u")
    for _ in range(10):
        assert set(codes(stage.ask(every=True))) == {"t", "u"}
    assert stage.all_topics.encodings == 3
    stage.update("t", leader=7)
    assert codes(stage.ask(every=True)) == codes(stage.ask("t", "u"))
    assert stage.all_topics.encodings == 4


def test_topics_are_encoded_anew_when_the_live_brokers_change() -> None:
    stage = MetadataStage().update("t", live={0: 9092})
    assert only(stage.ask(every=True)).leader_id == 0
    stage.update(partitions=0, live={1: 9093})
    assert only(stage.ask(every=True)) == only(stage.ask("t"))
    assert only(stage.ask(every=True)).leader_id == -1


def test_a_topic_that_is_gone_is_not_kept() -> None:
    stage = MetadataStage().update("t").update("u")
    stage.ask(every=True)
    stage.update("t", leader=LEADER_DURING_DELETE)
    assert set(codes(stage.ask(every=True))) == {"u"}
    stage.update("t", 2)
    assert encode(stage.ask(every=True), NEWEST) == encode(stage.ask("u", "t"), NEWEST)


async def test_many_partitions_are_encoded_some_a_turn_and_what_changes_meanwhile_is_seen() -> None:
    stage, topics, partitions = MetadataStage(), 30, metadata.PARTITIONS_A_TURN // 10
    for number in range(topics):
        stage.update(f"t{number}", partitions)
    response = stage.handle(MetadataRequest(topics=None), context(NEWEST))
    assert isinstance(response, Wait)
    assert stage.all_topics.encodings == 10
    await asyncio.sleep(0)
    stage.update("t0", partitions, leader=7)
    encoded = await stage.replicas.ended(response)
    assert stage.all_topics.encodings == topics + 1
    alone = stage.ask(*(f"t{number}" for number in range(topics)))
    assert encoded.body == encode(alone, NEWEST)


def test_each_listener_has_an_answer_of_its_own() -> None:
    stage = MetadataStage().update("t")
    metadata_request = MetadataRequest(topics=None)
    answers = [
        stage.handle(metadata_request, context(NEWEST)._replace(listener=listener))
        for listener in ("PLAINTEXT", "OTHER")
    ]
    assert answers[0] != answers[1]


def test_what_was_encoded_goes_out_as_any_answer() -> None:
    stage = MetadataStage().update("t", 2)
    metadata_request = MetadataRequest(topics=None)
    kept = stage.handle(metadata_request, context(NEWEST))
    plain = stage.ask(every=True)
    framed, holes = encode_response(ApiKey.METADATA, NEWEST, 7, kept)
    assert not holes
    assert (framed, holes) == encode_response(ApiKey.METADATA, NEWEST, 7, plain)


def test_views_of_senders_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = MetadataStage().update("a").update("b")
    senders = [
        AskingAuthorizer(lambda *_: True).sender(ANONYMOUS, "h"),
        AskingAuthorizer(lambda _, operation, resource: resource.name == "a").sender(
            ANONYMOUS, "h"
        ),
    ]

    # One object for each sender, as an authorizer keeps it.
    views = [sender.permissions(Operation.DESCRIBE, ResourceType.TOPIC) for sender in senders]
    kept = [KeptSender(view) for view in views]
    request = MetadataRequest(topics=None)
    first, second = (stage.handle(request, context(NEWEST)._replace(sender=it)) for it in kept)
    assert len(first.body) > len(second.body)
    again = stage.handle(request, context(NEWEST)._replace(sender=kept[0]))
    assert again is first

    # Without room for both, the last one is kept.
    monkeypatch.setattr(metadata, "MAX_KEPT_BYTES", len(first.body))
    stage = MetadataStage().update("a").update("b")
    for _ in range(3):
        responses = [stage.handle(request, context(NEWEST)._replace(sender=it)) for it in kept]
        assert [len(it.body) for it in responses] == [len(first.body), len(second.body)]
        assert len(stage.all_topics._responses) == 1
