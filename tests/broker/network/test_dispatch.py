"""Dispatch turns a frame into an outcome: a refusal, a response or a wait."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from broker.network.authorization import CLUSTER, Resource, topic
from broker.network.dispatch import (
    MOST_TRAILING_NOTED,
    NO_RESPONSE,
    Close,
    Dispatched,
    Dispatcher,
    Handler,
    Refused,
)
from broker.network.purgatory import Wait
from broker.network.request_context import Origin, RequestContext, authorize
from broker.network.session import ANONYMOUS, Principal
from protocol.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.bounds import MAX_CHANGING_ELEMENTS, MAX_FOLLOWED_ELEMENTS, MAX_REQUEST_ELEMENTS
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestPartitionState,
)
from protocol.registry import API
from tests.broker.served import ECHO, ask, echoed
from tests.stage.authorizer import REFUSING, AskingAuthorizer, allowing

ORIGIN = Origin("PLAINTEXT", "h:1")


def frame(key: ApiKey, version: int, request: Any, client_id: str | None = "me") -> memoryview:
    return memoryview(encode_request(key, version, 77, client_id, request))[4:]


def dispatcher(handlers: dict[ApiKey, Handler], **options: Any) -> Dispatcher:
    return Dispatcher(handlers, lambda: 123, lambda: 45, **options)


def dispatch(handlers: dict[ApiKey, Handler], data: bytes | memoryview) -> Dispatched:
    return dispatcher(handlers).dispatch(memoryview(data), ORIGIN)


def find(handler: Callable[[], Any]) -> Dispatched:
    """Dispatch a FindCoordinator request to this handler; return the outcome."""
    return dispatch({ApiKey.FIND_COORDINATOR: lambda r, c: handler()}, ask(77, "k")[4:])


def raising(error: Exception) -> Callable[..., Any]:
    def handler(*_: Any) -> Any:
        raise error

    return handler


def test_a_handler_gets_the_request_and_what_may_be_known_beside_it() -> None:
    got: list[tuple[FindCoordinatorRequest, RequestContext]] = []

    def handler(request: FindCoordinatorRequest, context: RequestContext) -> Any:
        got.append((request, context))
        return echoed(request.key)

    dispatched = dispatch({ApiKey.FIND_COORDINATOR: handler}, ask(77, "k")[4:])
    ((request, context),) = got
    assert request.key == "k"
    assert context == RequestContext(0, "client", "PLAINTEXT", "h:1", 123, monotonic_ms=45)
    assert (dispatched.header.correlation_id, dispatched.outcome, dispatched.close) == (
        77,
        echoed("k"),
        False,
    )


def test_a_client_without_a_name_has_an_empty_one() -> None:
    named: list[str] = []

    def handler(request: Any, context: RequestContext) -> Any:
        named.append(context.client_id)
        return ListGroupsResponse(error_code=0, groups=[])

    dispatch({ApiKey.LIST_GROUPS: handler}, frame(ApiKey.LIST_GROUPS, 0, ListGroupsRequest(), None))
    assert named == [""]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "request header"),
        ("000a0000", "request header"),
        ("03e7 0000 0000004d ffff", "API key 999 is not served"),
        ("0003 0000 0000004d ffff 00000000", "API key 3 is not served"),
        ("ffff 0000 0000004d ffff", "API key -1 is not served"),
        ("000a 0005 0000004d ffff 00 00 00", "FIND_COORDINATOR version 5 is not served"),
        ("000a ffff 0000004d ffff 0000", "FIND_COORDINATOR version -1 is not served"),
        ("000a 0000 0000004d", "FIND_COORDINATOR version 0: request header"),
        ("000a 0000 0000004d ffff 0005 61", "FIND_COORDINATOR version 0: key: length 5"),
    ],
)
def test_what_the_protocol_has_no_answer_for_is_refused_with_the_reason(
    data: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        dispatch(ECHO, bytes.fromhex(data))


@pytest.mark.fault("outside-O1", needs_no_remedy="the check that refused them is gone")
def test_bytes_behind_requests_are_ignored_and_logged_once_for_each_client_and_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = dispatcher(ECHO)
    sent = bytes(frame(ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest(key="a"))) + b"\0\0"
    of_another = frame(ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest(key="a"), "you")
    with caplog.at_level("INFO", "broker.network.dispatch"):
        for data in (sent, sent, bytes(of_another) + b"\0", sent):
            assert not isinstance(served.dispatch(memoryview(data), ORIGIN).outcome, Close)
    said = "bytes behind the request are ignored, here and later"
    assert caplog.messages == [
        f"FIND_COORDINATOR version 0 of client 'me': 2 {said}",
        f"FIND_COORDINATOR version 0 of client 'you': 1 {said}",
    ]


def test_the_clients_of_which_is_logged_that_they_send_too_much_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = dispatcher(ECHO)
    with caplog.at_level("INFO", "broker.network.dispatch"):
        for number in range(MOST_TRAILING_NOTED + 5):
            request = FindCoordinatorRequest(key="a")
            sent = bytes(frame(ApiKey.FIND_COORDINATOR, 0, request, str(number))) + b"\0"
            served.dispatch(memoryview(sent), ORIGIN)
    assert len(caplog.messages) == MOST_TRAILING_NOTED


def test_api_versions_of_the_future_is_answered_in_version_nought() -> None:
    """The bytes after the correlation id have an unknown format, and are not read."""
    served: dict[ApiKey, Handler] = {ApiKey.API_VERSIONS: raising(AssertionError())}
    dispatched = dispatch(served, bytes.fromhex("0012 0063 0000004d") + b"\xff\xff\xff")
    assert (dispatched.header.api_version, dispatched.header.correlation_id) == (0, 77)
    assert isinstance(dispatched.outcome, ApiVersionsResponse)
    assert dispatched.outcome.error_code == ErrorCode.UNSUPPORTED_VERSION
    (key,) = dispatched.outcome.api_keys
    assert (key.api_key, key.min_version, key.max_version) == (18, 0, 3)
    assert not dispatched.close


def test_api_versions_that_we_know_goes_to_its_handler() -> None:
    answer = ApiVersionsResponse(error_code=0, api_keys=[])
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    served: dict[ApiKey, Handler] = {ApiKey.API_VERSIONS: lambda request, context: answer}
    dispatched = dispatch(served, frame(ApiKey.API_VERSIONS, 3, asked))
    assert dispatched.outcome is answer


def test_an_api_error_is_answered_in_the_words_of_the_api() -> None:
    dispatched = find(raising(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not yet")))
    assert isinstance(dispatched.outcome, FindCoordinatorResponse)
    assert dispatched.outcome.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not dispatched.close


def test_what_nobody_expected_is_logged_answered_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatched = find(raising(KeyError("a bug")))
    assert dispatched.outcome.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert dispatched.close
    assert "FIND_COORDINATOR version 0 failed" in caplog.text
    assert "a bug" in caplog.text


def test_a_producer_that_wants_no_answer_gets_none_though_it_failed() -> None:
    part = ProduceRequestPartition(index=0, records=b"")
    request = ProduceRequest(
        acks=0,
        timeout_ms=1,
        topic_data=[ProduceRequestTopic(name="t", partition_data=[part])],
    )
    served: dict[ApiKey, Handler] = {ApiKey.PRODUCE: raising(KeyError("a bug"))}
    dispatched = dispatch(served, frame(ApiKey.PRODUCE, 7, request))
    assert (dispatched.outcome, dispatched.close) == (NO_RESPONSE, True)


def waiting(*answers: Any) -> Wait:
    """Build a wait whose tries return these answers in turn, or raise those that are exceptions."""
    left = list(answers)

    def try_complete(expired: bool) -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Wait(("a", "b"), 500, try_complete)


def tried(*answers: Any) -> Any:
    """Dispatch such a wait; return the result of its first try."""
    dispatched = find(lambda: waiting(*answers))
    assert isinstance(dispatched.outcome, Wait)
    return dispatched.outcome.try_complete(False)


def test_a_wait_keeps_its_keys_and_its_time() -> None:
    dispatched = find(lambda: waiting(None))
    assert (dispatched.outcome.keys, dispatched.outcome.timeout_ms) == (("a", "b"), 500)


def test_a_wait_goes_on_while_there_is_no_answer() -> None:
    assert tried(None) is None


def test_a_wait_ends_with_an_outcome_of_the_same_request() -> None:
    dispatched = tried(echoed("late"))
    assert (dispatched.header.correlation_id, dispatched.outcome, dispatched.close) == (
        77,
        echoed("late"),
        False,
    )


def test_an_api_error_after_a_wait_is_answered() -> None:
    dispatched = tried(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert dispatched.outcome.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not dispatched.close


def test_what_nobody_expected_after_a_wait_ends_the_connection_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatched = tried(KeyError("a bug"))
    assert dispatched.outcome.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert dispatched.close
    assert "a bug" in caplog.text


# ---- who may do what, and how often


def refusing(principal: Principal, operation: Operation, resource: Resource) -> bool:
    assert principal == ANONYMOUS
    return (operation, resource) != (Operation.DELETE, Resource(ResourceType.GROUP, "g"))


REFUSING_G = AskingAuthorizer(refusing)


@pytest.mark.parametrize(
    ("group_id", "error"), [("g", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("h", ErrorCode.NONE)]
)
def test_request_about_one_resource_is_refused_before_its_handler(
    group_id: str, error: ErrorCode
) -> None:
    done = OffsetDeleteResponse(topics=[])
    handlers: dict[ApiKey, Handler] = {ApiKey.OFFSET_DELETE: lambda request, context: done}
    request = frame(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group_id, topics=[]))
    dispatched = dispatcher(handlers, authorizer=REFUSING_G).dispatch(request, ORIGIN)
    assert isinstance(dispatched.outcome, OffsetDeleteResponse)
    assert dispatched.outcome.error_code == error


def test_handler_may_ask_for_each_topic_of_a_request() -> None:
    asked: list[bool] = []

    def handler(request: Any, context: RequestContext) -> Any:
        asked.append(authorize(context, Operation.READ, topic("a")))
        asked.append(authorize(context, Operation.DELETE, Resource(ResourceType.GROUP, "g")))
        return ListGroupsResponse(error_code=0, groups=[])

    handlers: dict[ApiKey, Handler] = {ApiKey.LIST_GROUPS: handler}
    request = frame(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
    dispatcher(handlers, authorizer=REFUSING_G).dispatch(request, ORIGIN)
    assert asked == [True, False]


def test_request_is_that_of_the_session_s_principal() -> None:
    principals: list[Principal] = []

    def handler(request: Any, context: RequestContext) -> Any:
        principals.append(context.principal)
        return ListGroupsResponse(error_code=0, groups=[])

    request = frame(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
    origin = Origin("SASL", "h:1", principal=Principal("User", "alice"))
    dispatcher({ApiKey.LIST_GROUPS: handler}).dispatch(request, origin)
    assert [str(principal) for principal in principals] == ["User:alice"]


class SizeAndTime:
    """A bill by which a client is silent for a millisecond a byte and nanosecond."""

    def charge(self, dispatched: Dispatched, *, size: int, spent_ns: int, **_: Any) -> Dispatched:
        return dispatched._replace(throttle_ms=size + spent_ns)


def charging(handlers: dict[ApiKey, Handler]) -> Dispatcher:
    """A dispatcher whose clock goes on by a second at each look."""
    clock = itertools.count(0, 1000)
    return dispatcher(handlers, open_bill=SizeAndTime, now_ns=lambda: next(clock))


def test_response_is_charged_with_its_size_and_its_time() -> None:
    handlers: dict[ApiKey, Handler] = {
        ApiKey.LIST_GROUPS: lambda request, context: ListGroupsResponse(error_code=0, groups=[])
    }
    request = frame(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
    dispatched = charging(handlers).dispatch(request, ORIGIN)
    assert dispatched.throttle_ms == len(request) + 1000


def test_request_that_waits_is_charged_when_it_has_its_response() -> None:
    response = ListGroupsResponse(error_code=0, groups=[])
    tries = iter([None, response])
    wait = Wait(keys=("k",), timeout_ms=100, try_complete=lambda expired: next(tries))
    request = frame(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
    handlers: dict[ApiKey, Handler] = {ApiKey.LIST_GROUPS: lambda request, context: wait}

    dispatched = charging(handlers).dispatch(request, ORIGIN)
    assert isinstance(dispatched.outcome, Wait)
    assert dispatched.throttle_ms == 0
    assert dispatched.outcome.try_complete(False) is None
    ended = dispatched.outcome.try_complete(False)
    assert ended.outcome is response
    assert ended.throttle_ms == len(request) + 3000  # first, second try, and the look at its end


@pytest.mark.fault("strangers-44")
@pytest.mark.parametrize("build", [dispatcher, charging])
def test_what_is_not_kept_of_a_request_is_let_go_of_while_it_waits(
    build: Callable[..., Dispatcher],
) -> None:
    large = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        topics=[FetchRequestTopic(topic="t", partitions=[asked_of(n % 2) for n in range(100)])],
    )
    kept = attrs.evolve(
        large, topics=[FetchRequestTopic(topic="t", partitions=[asked_of(0), asked_of(1)])]
    )
    sent: list[Callable[[], Any]] = []

    def handler(request: FetchRequest, context: RequestContext) -> Any:
        sent.append(weakref.ref(request))
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Wait(("k",), 100, waiting(None, error).try_complete, request=kept)

    data = frame(ApiKey.FETCH, 11, large)
    dispatched = build({ApiKey.FETCH: handler}).dispatch(data, ORIGIN)
    assert dispatched.outcome.try_complete(False) is None
    gc.collect()
    assert sent[0]() is None

    (topic_response,) = dispatched.outcome.try_complete(False).outcome.responses
    assert [part.partition_index for part in topic_response.partitions] == [0, 1]


def asked_of(partition: int) -> FetchRequestPartition:
    return FetchRequestPartition(partition=partition, fetch_offset=0, partition_max_bytes=1)


FOLLOWER = FetchRequest(replica_id=3, max_wait_ms=0, min_bytes=0, topics=())


@pytest.mark.fault("strangers-4")
@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.UPDATE_METADATA])
def test_a_sender_without_cluster_action_does_not_pass_for_a_broker(key: ApiKey) -> None:
    """Connections of brokers are read however short memory is."""
    request: Any = FOLLOWER
    if key == ApiKey.UPDATE_METADATA:
        request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=())
    data = frame(key, API[key].served.last, request)

    def is_from_broker(authorizer: AskingAuthorizer | None, *listeners: str) -> bool:
        handlers: dict[ApiKey, Handler] = {key: lambda request, context: NO_RESPONSE}
        options: dict[str, Any] = {"authorizer": authorizer, "broker_listeners": lambda: listeners}
        return dispatcher(handlers, **options).dispatch(data, ORIGIN).is_from_broker

    # Without ACLs the listener tells, if there is one for brokers alone.
    assert is_from_broker(None)
    assert is_from_broker(None, ORIGIN.listener)
    assert not is_from_broker(None, "INTERNAL")
    assert is_from_broker(allowing((Operation.CLUSTER_ACTION, CLUSTER)))
    assert not is_from_broker(REFUSING)


def test_a_controller_may_name_more_partitions_than_a_client() -> None:
    """Without ClusterAction nobody passes for a controller."""
    state = UpdateMetadataRequestPartitionState(
        topic_name="t",
        partition_index=0,
        controller_epoch=1,
        leader=1,
        leader_epoch=1,
        isr=(1,),
        zk_version=0,
        replicas=(1,),
    )
    request = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        ungrouped_partition_states=[state] * (MAX_REQUEST_ELEMENTS + 1),
        live_brokers=(),
    )
    data = frame(ApiKey.UPDATE_METADATA, 0, request)
    handlers: dict[ApiKey, Handler] = {ApiKey.UPDATE_METADATA: lambda request, context: NO_RESPONSE}
    for authorizer in (None, allowing((Operation.CLUSTER_ACTION, CLUSTER))):
        assert dispatcher(handlers, authorizer=authorizer).dispatch(data, ORIGIN).is_from_broker
    with pytest.raises(Refused, match="more than 250000 elements"):
        dispatcher(handlers, authorizer=REFUSING).dispatch(data, ORIGIN)


@pytest.mark.fault("strangers-6")
def test_requests_of_brokers_are_told_by_their_first_bytes() -> None:
    update = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, ungrouped_partition_states=(), live_brokers=()
    )

    def fetch(replica_id: int) -> memoryview:
        request = FetchRequest(
            replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[]
        )
        return frame(ApiKey.FETCH, 11, request)

    believing = dispatcher({})
    for data in (frame(ApiKey.UPDATE_METADATA, 0, update), fetch(1)):
        assert believing.is_from_broker(data, ORIGIN)
        assert believing.is_from_broker(data[:20], ORIGIN)
        assert not believing.is_from_broker(data[:9], ORIGIN)
        assert not dispatcher({}, authorizer=REFUSING).is_from_broker(data, ORIGIN)
        assert not dispatcher({}, broker_listeners=lambda: {"B"}).is_from_broker(data, ORIGIN)
        acting = allowing((Operation.CLUSTER_ACTION, CLUSTER))
        assert dispatcher({}, authorizer=acting).is_from_broker(data, ORIGIN)
    assert not believing.is_from_broker(fetch(-1), ORIGIN)
    assert not believing.is_from_broker(memoryview(b""), ORIGIN)


@pytest.mark.fault("security-5")
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_follower_may_fetch_from_more_partitions_than_a_consumer(version: int) -> None:
    """Without ClusterAction nobody passes for a follower."""
    handlers: dict[ApiKey, Handler] = {ApiKey.FETCH: lambda request, context: NO_RESPONSE}
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1)

    def fetches(replica_id: int, count: int) -> memoryview:
        topics = [FetchRequestTopic(topic="t", partitions=[partition] * count)]
        request = FetchRequest(
            replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=1, topics=topics
        )
        return frame(ApiKey.FETCH, version, request)

    many = MAX_CHANGING_ELEMENTS + 1
    for authorizer in (None, allowing((Operation.CLUSTER_ACTION, CLUSTER))):
        served = dispatcher(handlers, authorizer=authorizer).dispatch(fetches(1, many), ORIGIN)
        assert served.outcome is NO_RESPONSE
    with pytest.raises(Refused, match="more than 50000 elements"):
        dispatch(handlers, fetches(-1, many))
    with pytest.raises(Refused, match="more than 50000 elements"):
        dispatcher(handlers, authorizer=REFUSING).dispatch(fetches(1, many), ORIGIN)
    with pytest.raises(Refused, match=f"more than {MAX_FOLLOWED_ELEMENTS} elements"):
        dispatch(handlers, fetches(1, MAX_FOLLOWED_ELEMENTS + 1))


@pytest.mark.fault("security-5")
def test_what_changes_something_may_name_less_than_what_asks() -> None:
    handlers: dict[ApiKey, Handler] = {
        ApiKey.DELETE_TOPICS: lambda request, context: NO_RESPONSE,
        ApiKey.METADATA: lambda request, context: NO_RESPONSE,
    }
    names = [str(number) for number in range(MAX_CHANGING_ELEMENTS + 1)]
    deletion = frame(ApiKey.DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=names, timeout_ms=1))
    topics = [MetadataRequestTopic(name=name) for name in names]
    question = frame(ApiKey.METADATA, 5, MetadataRequest(topics=topics))

    assert dispatch(handlers, question).outcome is NO_RESPONSE
    with pytest.raises(Refused, match="more than 50000 elements"):
        dispatch(handlers, deletion)
