"""Requests that name very many things: served in parts, and as if they were served at once."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from broker.network import long_answers
from broker.network.authorization import group
from broker.network.deferred import Deferred
from broker.network.dispatch import AT_ONCE_ELEMENTS, Close, Dispatched, Dispatcher, Handler
from broker.network.large_requests import (
    BEGIN_WITH,
    FEW_A_TURN,
    LARGE_AT_ONCE,
    SIZES,
    SLICED,
    THINGS_A_TURN,
    LargeRequests,
    Turn,
    split,
)
from broker.network.letting_go import FREED_A_TURN
from broker.network.long_answers import CHUNK_BYTES
from broker.network.purgatory import Parked, Purgatory, Wait
from broker.network.request_context import MOST_LOGGED, Origin, RequestContext, authorize
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.bounds import MAX_REQUEST_ELEMENTS
from protocol.errors import ErrorCode
from protocol.header import encode_request, encode_response
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    group_error,
)
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from protocol.registry import API
from tests.broker.received import received
from tests.broker.replication.replicas import context
from tests.broker.spawning import Spawned
from tests.stage.authorizer import REFUSING
from tests.stage.waiting import until

ORIGIN = Origin("PLAINTEXT", "h:1")
BROKERS = Origin("BROKERS", "h:2", 2)
MANY = [f"g{n}" for n in range(5 * AT_ONCE_ELEMENTS + 7)]


@attrs.define(eq=False)
class Stage:
    """A dispatcher that serves large requests apart, and what has to be there for it."""

    handlers: dict[ApiKey, Handler]
    threads: ThreadPoolExecutor
    authorizer: Any = None
    most_waiting_bytes: int = 2**30
    purgatory: Purgatory = attrs.field(factory=Purgatory)
    large: LargeRequests = attrs.field(init=False)
    dispatcher: Dispatcher = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        deferred = Deferred(Spawned(), self.purgatory.touch, self.threads)
        self.large = LargeRequests(deferred, self.purgatory, self.most_waiting_bytes)
        self.dispatcher = Dispatcher(
            self.handlers,
            lambda: 123,
            lambda: 45,
            self.authorizer,
            large=self.large,
            broker_listeners=lambda: {BROKERS.listener},
        )

    @property
    def waiting(self) -> int:
        """How many wait in all lines."""
        return sum(line.waiting for line in self.large._lines.values())

    async def ask(
        self, key: ApiKey, version: int, request: Any, origin: Origin = ORIGIN
    ) -> Dispatched:
        frame = memoryview(encode_request(key, version, 77, "me", request))[4:]
        dispatched = self.dispatcher.dispatch(frame, origin)
        while isinstance(dispatched.outcome, Wait):
            ended: asyncio.Future[Dispatched] = asyncio.get_running_loop().create_future()
            if self.purgatory.park(dispatched.outcome, ended.set_result) is not None:
                dispatched = await ended
        return dispatched


class CountingThreads(ThreadPoolExecutor):
    """A thread that counts what it is given to do."""

    works = 0

    def submit(self, *arguments: Any, **named: Any) -> Any:
        self.works += 1
        return super().submit(*arguments, **named)


@pytest.fixture
def threads() -> Iterator[CountingThreads]:
    with CountingThreads(1) as executor:
        yield executor


def describe(called: list[int]) -> Handler:
    """Return a handler that refuses groups by name, and notes how many it is asked for at once."""

    def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        called.append(len(request.groups))
        codes = [
            ErrorCode.NONE
            if authorize(context, Operation.DESCRIBE, group(group_id))
            else ErrorCode.GROUP_AUTHORIZATION_FAILED
            for group_id in request.groups
        ]
        return DescribeGroupsResponse(
            groups=[group_error(*pair) for pair in zip(request.groups, codes, strict=True)]
        )

    return handle


def read(dispatched: Dispatched, key: ApiKey, version: int) -> Any:
    return received(key, version, dispatched.outcome)


@pytest.mark.fault("security-5")
async def test_few_groups_are_described_in_one_turn_for_each_may_have_a_megabyte(
    threads: CountingThreads,
) -> None:
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)
    request = DescribeGroupsRequest(groups=MANY[: 5 * FEW_A_TURN])

    dispatched = await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, request)

    # They begin with one, for it may be large, and are more as their answers are small.
    assert called == [1, 2, 4, 8, 16, FEW_A_TURN, FEW_A_TURN, FEW_A_TURN, 9]
    assert len(read(dispatched, ApiKey.DESCRIBE_GROUPS, 5).groups) == 5 * FEW_A_TURN


@pytest.mark.fault("strangers-14")
async def test_fewer_groups_are_described_in_one_turn_where_they_are_large(
    threads: CountingThreads,
) -> None:
    called: list[list[str]] = []

    def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        called.append([*request.groups])
        return DescribeGroupsResponse(
            groups=[
                attrs.evolve(
                    group_error(group_id, ErrorCode.NONE),
                    protocol_data="x" * (30_000 if group_id.startswith("large") else 0),
                )
                for group_id in request.groups
            ]
        )

    stage = Stage({ApiKey.DESCRIBE_GROUPS: handle}, threads)
    names = [*MANY[:15], *(f"large{number}" for number in range(20)), *MANY[15:40]]
    dispatched = await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=names))

    # The first of them could not be known to be large.
    large = [sum(name.startswith("large") for name in part) for part in called]
    assert large == [0, 0, 0, 0, 16, 4, *[0] * (len(called) - 6)]
    described = read(dispatched, ApiKey.DESCRIBE_GROUPS, 5).groups
    assert [group.group_id for group in described] == names


@pytest.mark.fault("strangers-14")
async def test_two_groups_have_two_turns(threads: CountingThreads) -> None:
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)
    await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY[:2]))
    assert called == [1, 1]


@pytest.mark.fault("security-2")
async def test_answers_that_are_too_large_together_are_not_made(
    threads: CountingThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "MOST_ANSWER_BYTES", 1000)
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)

    dispatched = await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY))

    assert isinstance(dispatched.outcome, Close)
    assert sum(called) < len(MANY) / 10


@pytest.mark.fault("security-5")
@pytest.mark.parametrize("version", [0, 5])
async def test_no_turn_serves_more_than_some_things_and_the_response_has_all(
    version: int, threads: ThreadPoolExecutor
) -> None:
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)

    dispatched = await stage.ask(
        ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=MANY)
    )

    assert max(called) <= THINGS_A_TURN
    response = read(dispatched, ApiKey.DESCRIBE_GROUPS, version)
    assert [described.group_id for described in response.groups] == MANY
    assert stage.purgatory.parked == 0

    # It is sent in a few chunks, not in one for each turn that has made some of it.
    *others, _ = encode_response(ApiKey.DESCRIBE_GROUPS, version, 77, dispatched.outcome)[1]
    assert all(chunk.size >= CHUNK_BYTES for _, chunk in others)
    assert len(others) > 1


@pytest.mark.fault("security-5")
async def test_others_have_a_turn_between_the_parts(threads: ThreadPoolExecutor) -> None:
    called: list[int] = []
    seen: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)

    async def look() -> None:
        while True:
            seen.append(len(called))
            await asyncio.sleep(0)

    other = asyncio.ensure_future(look())
    await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY))
    other.cancel()

    assert set(range(len(called))) <= set(seen)


@pytest.mark.fault("security-5")
async def test_refused_names_are_a_few_lines_and_a_number(
    threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe([])}, threads, REFUSING)

    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY))

    *named, rest = [record.getMessage() for record in caplog.records]
    assert len(named) == MOST_LOGGED
    assert named[0].endswith("Operation = Describe from host = h on resource = Group:LITERAL:g0")
    assert rest.endswith(f"resource = Group: {len(MANY) - MOST_LOGGED} more of the same request")


@pytest.mark.fault("security-5")
async def test_what_a_large_request_names_is_freed_some_of_it_a_turn(
    threads: ThreadPoolExecutor,
) -> None:
    named: weakref.WeakSet[ListOffsetsRequestPartition] = weakref.WeakSet()
    most = 0

    def note(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        for topic in request.topics:
            named.update(topic.partitions)
        return ListOffsetsResponse(topics=())

    async def watch() -> None:
        nonlocal most
        before = 0
        while True:
            most = max(most, before - len(named))
            before = len(named)
            await asyncio.sleep(0)

    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name="t",
                partitions=[
                    ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
                    for index in range(4 * FREED_A_TURN)
                ],
            )
        ],
    )
    watching = asyncio.create_task(watch())
    await Stage({ApiKey.LIST_OFFSETS: note}, threads).ask(ApiKey.LIST_OFFSETS, 5, request)
    await until(lambda: not named, "all of it is freed")
    watching.cancel()

    assert 0 < most <= 2 * FREED_A_TURN


@pytest.mark.fault("security-3")
@pytest.mark.parametrize("count", [AT_ONCE_ELEMENTS, AT_ONCE_ELEMENTS + 1])
async def test_only_what_is_read_soon_is_read_on_the_loop(
    count: int, threads: CountingThreads
) -> None:
    def delete(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[])

    stage = Stage({ApiKey.DELETE_GROUPS: delete}, threads)

    await stage.ask(ApiKey.DELETE_GROUPS, 1, DeleteGroupsRequest(groups_names=MANY[:count]))

    assert threads.works == (0 if count <= AT_ONCE_ELEMENTS else 1)


async def test_more_than_a_request_may_name_closes_the_connection(
    threads: ThreadPoolExecutor,
) -> None:
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)
    request = DescribeGroupsRequest(groups=["g"] * (MAX_REQUEST_ELEMENTS + 1))

    dispatched = await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, request)

    assert isinstance(dispatched.outcome, Close)
    assert "more than 250000 elements" in dispatched.outcome.reason
    assert not called


async def test_what_a_handler_waits_for_is_waited_for_in_each_part(
    threads: ThreadPoolExecutor,
) -> None:
    called: list[int] = []
    at_once = describe(called)

    def handle(request: Any, context: RequestContext) -> Any:
        return Wait(("never",), 1, lambda expired: at_once(request, context) if expired else None)

    stage = Stage({ApiKey.DESCRIBE_GROUPS: handle}, threads)

    dispatched = await stage.ask(
        ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=MANY[: AT_ONCE_ELEMENTS + 50])
    )

    response = read(dispatched, ApiKey.DESCRIBE_GROUPS, 5)
    assert len(response.groups) == AT_ONCE_ELEMENTS + 50


@pytest.mark.fault("security-5")
async def test_few_of_all_connections_are_served_in_parts_at_once(
    threads: ThreadPoolExecutor,
) -> None:
    """The others wait as bytes. Their elements would take ten times as much."""
    begun: Counter[str] = Counter()
    most: list[int] = []

    def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        client, number = request.groups[0].split("-")
        begun[client] += 1
        if len(MANY) - int(number) <= THINGS_A_TURN:
            del begun[client]
        most.append(len(begun))
        return DescribeGroupsResponse(groups=[])

    stage = Stage({ApiKey.DESCRIBE_GROUPS: handle}, threads)
    requests = [
        DescribeGroupsRequest(groups=[f"{number}-{thing}" for thing in range(len(MANY))])
        for number in range(4 * LARGE_AT_ONCE)
    ]
    await asyncio.gather(
        *[
            stage.ask(ApiKey.DESCRIBE_GROUPS, 5, request, client(number))
            for number, request in enumerate(requests)
        ]
    )

    assert begun == {}
    assert max(most) <= LARGE_AT_ONCE


# ---- turns

HELD = "held"
"""The first group of those whose request is never answered."""
JUST_LARGE = AT_ONCE_ELEMENTS + 1
VERY_LARGE = SIZES[-1] + 1


def client(number: int) -> Origin:
    """A client of an address of its own."""
    return Origin("PLAINTEXT", f"10.0.0.{number}:1", number)


def groups(size: int, first: str = "g") -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[first, *["g"] * (size - 1)])


@attrs.define(eq=False)
class Flooded:
    """A stage on which requests have all places of their line, and others wait behind them."""

    stage: Stage
    called: list[int] = attrs.field(factory=list)
    asked: list[asyncio.Task[Dispatched]] = attrs.field(factory=list)

    async def flood(self, size: int, *origins: Origin) -> None:
        """Send one request for each; return when those with a place are parked."""
        for origin in origins:
            asking = self.stage.ask(ApiKey.DESCRIBE_GROUPS, 5, groups(size, HELD), origin)
            self.asked.append(asyncio.ensure_future(asking))
        served = min(len({origin.connection_id for origin in origins}), LARGE_AT_ONCE)
        await until(
            lambda: (len(self.called), self.stage.waiting) == (served, len(origins) - served),
            "those with a place are parked, and the others wait",
        )

    async def is_served(self, size: int, origin: Origin) -> bool:
        """Ask for other groups; whether they are described though nobody leaves a place."""
        asking = asyncio.ensure_future(
            self.stage.ask(ApiKey.DESCRIBE_GROUPS, 5, groups(size), origin)
        )
        self.asked.append(asking)
        before = self.stage.waiting
        await until(lambda: asking.done() or self.stage.waiting > before, "it is served or waits")
        return asking.done()


@pytest.fixture
def flooded(threads: CountingThreads) -> Flooded:
    called: list[int] = []
    at_once = describe([])

    def handle(request: DescribeGroupsRequest, context: RequestContext) -> Any:
        if request.groups[0] != HELD:
            return at_once(request, context)
        called.append(len(request.groups))
        return Wait(("never",), 600_000, lambda expired: None)

    def delete(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[])

    handlers: dict[ApiKey, Handler] = {
        ApiKey.DESCRIBE_GROUPS: handle,
        ApiKey.DELETE_GROUPS: delete,
        ApiKey.LIST_OFFSETS: lambda request, context: Wait(
            ("never",), 600_000, lambda expired: None
        ),
    }
    return Flooded(Stage(handlers, threads), called)


@pytest.mark.fault("security-5")
@pytest.mark.parametrize("size", [JUST_LARGE, VERY_LARGE])
async def test_a_client_with_many_requests_keeps_no_other_waiting(
    size: int, flooded: Flooded
) -> None:
    await flooded.flood(size, *[client(1)] * 20)
    assert await flooded.is_served(size, client(2))
    assert not await flooded.is_served(size, client(1))


@pytest.mark.fault("security-5")
async def test_what_is_just_large_waits_for_nothing_that_is_very_large(flooded: Flooded) -> None:
    await flooded.flood(VERY_LARGE, *map(client, range(6)))
    assert await flooded.is_served(JUST_LARGE, client(1))
    assert not await flooded.is_served(VERY_LARGE, client(1))


@pytest.mark.fault("security-5")
async def test_brokers_do_not_wait_for_clients(flooded: Flooded) -> None:
    await flooded.flood(JUST_LARGE, *map(client, range(6)))
    assert await flooded.is_served(JUST_LARGE, BROKERS)
    assert not await flooded.is_served(JUST_LARGE, client(7))


async def test_what_changes_something_does_not_wait_for_what_only_asks(flooded: Flooded) -> None:
    await flooded.flood(JUST_LARGE, *map(client, range(6)))
    request = DeleteGroupsRequest(groups_names=["g"] * JUST_LARGE)
    dispatched = await flooded.stage.ask(ApiKey.DELETE_GROUPS, 2, request, client(1))
    assert isinstance(dispatched.outcome, DeleteGroupsResponse)


async def test_what_only_asks_does_not_wait_for_what_looks_up_times(flooded: Flooded) -> None:
    for number in range(4):
        asking = flooded.stage.ask(ApiKey.LIST_OFFSETS, 5, times(JUST_LARGE), client(number))
        flooded.asked.append(asyncio.ensure_future(asking))
    await until(lambda: flooded.stage.waiting == 4 - LARGE_AT_ONCE, "the others wait")
    assert await flooded.is_served(JUST_LARGE, client(5))


@pytest.mark.fault("strangers-6")
async def test_no_large_answer_begins_for_a_client_without_room_but_others_go_on(
    threads: CountingThreads,
) -> None:
    called: list[int] = []
    stage = Stage({ApiKey.DESCRIBE_GROUPS: describe(called)}, threads)
    full = {client(1).connection_id.split(":")[0]}
    stage.large.has_room_for = lambda name: name not in full
    of_full = asyncio.ensure_future(
        stage.ask(ApiKey.DESCRIBE_GROUPS, 5, groups(AT_ONCE_ELEMENTS + 1), client(1))
    )
    await until(lambda: stage.waiting == 1, "it waits")
    await stage.ask(ApiKey.DESCRIBE_GROUPS, 5, groups(AT_ONCE_ELEMENTS + 1), client(2))
    stage.large.go_on()
    assert (stage.waiting, of_full.done()) == (1, False)
    full.clear()
    stage.large.go_on()
    dispatched = await of_full
    described = read(dispatched, ApiKey.DESCRIBE_GROUPS, 5).groups
    assert len(described) == AT_ONCE_ELEMENTS + 1


def times(size: int) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsRequestPartition(partition_index=index, timestamp=1) for index in range(size)
    ]
    topics = [ListOffsetsRequestTopic(name="t", partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


async def test_large_request_that_is_not_served_in_time_ends_its_connection(
    flooded: Flooded,
) -> None:
    """To say so of each thing would take a turn for all of them."""
    large = flooded.stage.large
    handler = flooded.stage.handlers[ApiKey.LIST_OFFSETS]
    wait = large.sliced(ApiKey.LIST_OFFSETS, handler)(times(JUST_LARGE), context(5))
    assert isinstance(wait, Wait)
    assert wait.try_complete(True) == Close("a request was not served in time")


class Frame(bytearray):
    """Bytes that can be looked at until they are free."""


def parked(stage: Stage, origin: Origin) -> tuple[Parked, weakref.ref[Frame]]:
    """Dispatch a request as a connection does, and park it."""
    encoded = encode_request(ApiKey.DESCRIBE_GROUPS, 5, 77, "me", groups(JUST_LARGE, HELD))
    frame = Frame(encoded[4:])
    dispatched = stage.dispatcher.dispatch(memoryview(frame), origin)
    assert isinstance(dispatched.outcome, Wait)
    request = stage.purgatory.park(dispatched.outcome, lambda outcome: None)
    assert request is not None
    return request, weakref.ref(frame)


@pytest.mark.fault("security-3")
@pytest.mark.parametrize("end", ["its connection is closed", "its time is up"])
async def test_a_request_that_waits_for_a_place_is_let_go_when(end: str, flooded: Flooded) -> None:
    await flooded.flood(JUST_LARGE, *map(client, range(2)))
    stage = flooded.stage
    request, frame = parked(stage, client(3))
    await until(lambda: stage.waiting == 1, "it waits")

    if end == "its connection is closed":
        stage.purgatory.cancel(request)
        outcome = None
    else:
        outcome = request.wait.try_complete(True).outcome
    del request

    await until(lambda: stage.waiting == 0, "it waits no longer")
    await until(lambda: frame() is None, "nothing holds its bytes")
    if outcome is not None:
        assert outcome == Close("a request was not read in time")


@pytest.mark.fault("security-0")
async def test_nothing_is_kept_of_a_request_that_names_too_much(flooded: Flooded) -> None:
    """Not even until cycles are collected."""
    stage = flooded.stage
    too_many = groups(MAX_REQUEST_ELEMENTS + 1)
    gc.disable()
    try:
        frame = Frame(encode_request(ApiKey.DESCRIBE_GROUPS, 5, 77, "me", too_many)[4:])
        seen = weakref.ref(frame)
        dispatched = stage.dispatcher.dispatch(memoryview(frame), ORIGIN)
        assert isinstance(dispatched.outcome, Wait)
        ended: list[Any] = []
        stage.purgatory.park(dispatched.outcome, ended.append)
        del frame, dispatched
        await until(lambda: ended, "it is refused")
        assert isinstance(ended[0].outcome, Close)
        await until(lambda: seen() is None, "nothing holds its bytes", deadline_s=5)
    finally:
        gc.enable()


@pytest.mark.fault("security-3")
async def test_a_request_whose_client_is_gone_is_served_no_further(flooded: Flooded) -> None:
    stage = flooded.stage
    request, frame = parked(stage, client(1))
    respond = request.respond
    second: list[Parked] = []

    def park_again(dispatched: Dispatched) -> None:
        respond(dispatched)
        assert isinstance(dispatched.outcome, Wait)
        again = stage.purgatory.park(dispatched.outcome, lambda outcome: None)
        assert again is not None
        second.append(again)

    request.respond = park_again
    await until(lambda: flooded.called, "its first part is served")
    del request
    stage.purgatory.cancel(second.pop())

    await until(lambda: frame() is None, "nothing holds its bytes")
    await until(lambda: stage.purgatory.parked == 0, "nothing of it waits")
    # Its place is free, and no other part of it was served.
    assert len(flooded.called) == 1
    assert await flooded.is_served(JUST_LARGE, client(1))


@pytest.mark.fault("security-3")
async def test_those_that_wait_hold_no_more_than_a_bound(threads: CountingThreads) -> None:
    size = len(encode_request(ApiKey.DESCRIBE_GROUPS, 5, 77, "me", groups(JUST_LARGE)))

    def handle(request: Any, context: RequestContext) -> Any:
        return Wait(("never",), 600_000, lambda expired: None)

    stage = Stage({ApiKey.DESCRIBE_GROUPS: handle}, threads, most_waiting_bytes=3 * size)
    asking = [
        asyncio.ensure_future(stage.ask(ApiKey.DESCRIBE_GROUPS, 5, groups(JUST_LARGE), client(1)))
        for n in range(10)
    ]
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result().outcome for task in done} == {Close("too many large requests wait")}
    assert stage.waiting == 3


# ---- parts


def ten_a_turn() -> Turn:
    turn = Turn(10 * BEGIN_WITH)
    assert turn.things == 10
    return turn


def list_offsets(partitions: list[int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name=f"t{number}",
                partitions=[
                    ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
                    for index in range(count)
                ],
            )
            for number, count in enumerate(partitions)
        ],
    )


@pytest.mark.parametrize(
    "partitions", [[1], [0, 0, 0], [25], [1] * 25, [3, 0, 31, 9], [10, 10], [9, 2, 9]]
)
def test_parts_name_all_that_the_whole_names_and_few_each(partitions: list[int]) -> None:
    whole = list_offsets(partitions)

    def named(request: ListOffsetsRequest) -> list[tuple[str, int]]:
        return [(t.name, p.partition_index) for t in request.topics for p in t.partitions]

    parts = list(split(whole, ("topics", "partitions"), ten_a_turn()))

    assert [pair for part in parts for pair in named(part)] == named(whole)
    assert {topic.name for part in parts for topic in part.topics} == {
        topic.name for topic in whole.topics
    }
    assert max(len(named(part)) for part in parts) < 2 * 10


def test_group_that_asks_for_all_its_topics_stays_whole() -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=range(25))]
    groups = [
        OffsetFetchRequestGroup(group_id="a", topics=None),
        OffsetFetchRequestGroup(group_id="b", topics=topics),
    ]
    parts = list(
        split(
            OffsetFetchRequest(groups=groups),
            ("groups", "topics", "partition_indexes"),
            ten_a_turn(),
        )
    )

    asked = [
        (of.group_id, None if of.topics is None else [len(t.partition_indexes) for t in of.topics])
        for part in parts
        for of in part.groups
    ]
    assert asked == [("a", None), ("b", [10]), ("b", [10]), ("b", [5])]


@pytest.mark.parametrize("key", SLICED)
def test_fields_of_the_things_are_those_of_the_messages(key: ApiKey) -> None:
    api = API[key]
    for things in SLICED[key]:
        assert things.path[0] in {field.name for field in attrs.fields(api.request)}
        assert things.answers in {field.name for field in attrs.fields(api.response)}
