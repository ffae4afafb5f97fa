"""One connection over the loopback: the order of responses, its bounds, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any

import attrs
import pytest

from broker.network.authorization import Sender
from broker.network.connection import JOINED_BYTES, LAST_WAIT_S, RUN_REQUESTS
from broker.network.deferred import Deferred
from broker.network.dispatch import NO_RESPONSE, Close, Dispatcher, Handler
from broker.network.purgatory import Purgatory, Wait
from broker.network.turns import SHARE_REQUESTS
from protocol.api_key import ApiKey
from protocol.encoding import Encoded, EncodedArray, encode_element
from protocol.errors import ErrorCode
from protocol.frames import BEGUN_BYTES, LARGE_BYTES
from protocol.header import encode_request, encode_response, read_response
from protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    group_error,
)
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from tests.broker.served import ECHO, Client, Server, ask, echo, echoed, serving
from tests.stage.waiting import until

WAIT_MS = 600_000
"""No client that is gone keeps a request for so long."""
KEY_AT = 8
"""Where requests of the same key are the same."""


@attrs.define(eq=False)
class Held:
    """A handler that parks keys "wait…" until `answer` is called, and echoes others."""

    served: list[str] = attrs.field(factory=list)
    answers: dict[str, Any] = attrs.field(factory=dict)

    def __call__(self, request: Any, context: Any) -> Any:
        self.served.append(request.key)
        if not request.key.startswith("wait"):
            return echoed(request.key)
        key = request.key
        return Wait((key,), WAIT_MS, lambda expired: self.answers.get(key))

    def answer(self, purgatory: Purgatory, key: str) -> None:
        self.answers[key] = echoed(key)
        purgatory.touch(key)


def held() -> tuple[Held, dict[ApiKey, Handler]]:
    handler = Held()
    return handler, {ApiKey.FIND_COORDINATOR: handler}


# ---- order


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async with serving(ECHO) as server:
        client = await server.client()
        await client.send(*(ask(n, str(n)) for n in range(1000)))
        assert [await client.answer() for _ in range(1000)] == [(n, str(n)) for n in range(1000)]


async def test_requests_that_are_served_at_once_are_answered_in_order_between_others() -> None:
    runs: list[int] = []

    def serve_alike(
        frames: Sequence[memoryview], now_ms: int, sender: Sender | None
    ) -> list[bytes]:
        # Those that ask for the same key as the first one, unless it is "alone".
        keys = [bytes(frame[KEY_AT:]) for frame in frames]
        if keys[0].endswith(b"alone"):
            return []
        alike = list(takewhile(lambda frame: frame[KEY_AT:] == keys[0], frames))
        runs.append(len(alike))
        responses = []
        for frame in alike:
            correlation_id = int.from_bytes(frame[4:8])
            response = echoed(f"at once {correlation_id}")
            encoded, _ = encode_response(ApiKey.FIND_COORDINATOR, 0, correlation_id, response)
            responses.append(bytes(encoded))
        return responses

    async with serving(ECHO) as server:
        client = await server.client()
        await client.echo()
        (connection,) = server.listener.connections
        assert isinstance(connection.dispatcher, Dispatcher)
        connection.dispatcher.run_ways = {ApiKey.FIND_COORDINATOR: serve_alike}
        keys = ["a"] * 40 + ["b", "c", "c", "alone"] + ["d"] * 40
        for _ in range(50):
            await client.send(*(ask(n, key) for n, key in enumerate(keys)))
            answers = [await client.answer() for _ in keys]
            assert [number for number, _ in answers] == list(range(len(keys)))
            assert all(text in (keys[n], f"at once {n}") for n, text in answers)
            assert answers[keys.index("alone")] == (keys.index("alone"), "alone")
    assert max(runs) == RUN_REQUESTS


async def test_a_bug_where_requests_are_served_at_once_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(frames: Sequence[memoryview], now_ms: int, sender: Sender | None) -> list[bytes]:
        raise RuntimeError("planted")

    async with serving(ECHO) as server:
        client = await server.client()
        await client.echo()
        (connection,) = server.listener.connections
        assert isinstance(connection.dispatcher, Dispatcher)
        connection.dispatcher.run_ways = {ApiKey.FIND_COORDINATOR: fail}
        await client.send(ask(1) + ask(2))
        assert await client.is_closed()
    assert "planted" in caplog.text


async def test_a_request_that_comes_in_pieces_is_answered_once_it_is_whole() -> None:
    async with serving(ECHO) as server:
        client, other = await server.client(), await server.client()
        for byte in ask(7, "k"):
            await client.send(bytes([byte]))
            await other.echo()  # by now the broker has taken it in
        assert await client.answer() == (7, "k")


async def test_a_large_request_between_small_ones_arrives_whole() -> None:
    got: list[bytes] = []

    def take(request: ProduceRequest, context: Any) -> Any:
        got.append(bytes(request.topic_data[0].partition_data[0].records))
        return ProduceResponse(responses=[])

    sent = random.Random(5).randbytes(5_000_000)
    part = ProduceRequestPartition(index=0, records=sent)
    topic = ProduceRequestTopic(name="t", partition_data=[part])
    large = encode_request(
        ApiKey.PRODUCE, 7, 2, None, ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    )
    async with serving({ApiKey.PRODUCE: take, ApiKey.FIND_COORDINATOR: echo}) as server:
        client = await server.client()
        await client.send(ask(1, "before"), large, large, ask(3, "behind"))
        assert await client.answer() == (1, "before")
        for _ in range(2):
            assert read_response(ApiKey.PRODUCE, 7, await client.receive())[0] == 2
        assert await client.answer() == (3, "behind")
        assert got == [sent, sent]


@pytest.mark.fault("security-5")
async def test_a_large_response_in_chunks_counts_until_it_is_sent() -> None:
    ids = [f"group-{n:06d}" for n in range(50_000)]

    def describe(request: DescribeGroupsRequest, context: Any) -> DescribeGroupsResponse:
        described = [group_error(group_id, ErrorCode.NONE) for group_id in ids]
        encoded = [encode_element(of, DescribeGroupsResponse, 0) for of in described]
        chunks = [
            Encoded(encoded[0].kind, b"".join(of.body for of in encoded[n : n + 1000]))
            for n in range(0, len(encoded), 1000)
        ]
        return DescribeGroupsResponse(groups=EncodedArray(len(ids), chunks))  # type: ignore[arg-type]

    asked = encode_request(ApiKey.DESCRIBE_GROUPS, 0, 1, None, DescribeGroupsRequest(groups=["g"]))
    fixed = {"socket_send_buffer_bytes": "50000"}
    async with serving(
        {ApiKey.DESCRIBE_GROUPS: describe, ApiKey.FIND_COORDINATOR: echo}, **fixed
    ) as server:
        client, other = await server.client(receive_buffer_bytes=50_000), await server.client()
        await client.send(asked, ask(2, "behind"))
        await until(lambda: server.listener.queued.total > 1_000_000, "the response is held")
        assert await other.echo(9, "meanwhile") == (9, "meanwhile")

        number, response = read_response(ApiKey.DESCRIBE_GROUPS, 0, await client.receive())
        assert (number, [of.group_id for of in response.groups]) == (1, ids)
        assert await client.answer() == (2, "behind")
        await until(lambda: not server.listener.queued.total, "all of it is sent")


class CountingThread(ThreadPoolExecutor):
    """A thread that counts what it is given to do."""

    works = 0

    def submit(self, *arguments: Any, **named: Any) -> Any:
        self.works += 1
        return super().submit(*arguments, **named)


@pytest.mark.fault("security-5")
@pytest.mark.parametrize("sent", [BEGUN_BYTES // 2, 2 * LARGE_BYTES])
async def test_a_large_frame_whose_client_has_gone_is_freed_in_a_thread(sent: int) -> None:
    async with serving(ECHO) as server:
        with CountingThread(1) as threads:
            server.listener.executor = threads
            queued = server.listener.queued
            client = await server.client()
            await client.send((4 * LARGE_BYTES).to_bytes(4, "big") + bytes(sent))
            await until(lambda: queued.total == sent, "all of it is read")
            client.close()
            await until(lambda: queued.total == 0, "nothing is held")
            assert threads.works == (1 if sent > BEGUN_BYTES else 0)
            # The threads end before the broker.
            server.listener.executor = None


async def test_a_large_frame_whose_client_has_gone_is_freed_while_the_broker_stops() -> None:
    async with serving(ECHO) as server:
        with CountingThread(1) as threads:
            server.listener.executor = threads
            client = await server.client()
            await client.send((4 * LARGE_BYTES).to_bytes(4, "big") + bytes(2 * LARGE_BYTES))
            await until(lambda: server.listener.queued.total > LARGE_BYTES, "some is read")
        client.close()
        await until(lambda: server.listener.queued.total == 0, "nothing is held")
        assert threads.works == 1


async def test_answers_to_requests_read_together_leave_in_one_write() -> None:
    async with serving(ECHO) as server:
        client = await server.client()
        await client.send(*(ask(n, "k") for n in range(SHARE_REQUESTS)))
        one_answer = len(await client.receive()) + 4
        assert len(client._received) == (SHARE_REQUESTS - 1) * one_answer


async def test_requests_behind_one_that_waits_are_not_served_before_it() -> None:
    handler, handlers = held()
    async with serving(handlers) as server:
        client = await server.client()
        await client.send(ask(1, "a"), ask(2, "wait"), ask(3, "b"), ask(4, "c"))
        assert await client.answer() == (1, "a")
        assert handler.served == ["a", "wait"]
        handler.answer(server.purgatory, "wait")
        assert [await client.answer() for _ in range(3)] == [(2, "wait"), (3, "b"), (4, "c")]
        assert handler.served == ["a", "wait", "b", "c"]


async def test_several_that_wait_wait_in_turn() -> None:
    handler, handlers = held()
    async with serving(handlers) as server:
        client = await server.client()
        await client.send(ask(1, "wait 1"), ask(2, "wait 2"), ask(3, "end"))
        await until(lambda: server.purgatory.parked, "the first waits")
        handler.answer(server.purgatory, "wait 2")
        handler.answer(server.purgatory, "wait 1")
        assert await client.answer() == (1, "wait 1")
        await until(lambda: server.purgatory.parked, "the second waits")
        server.purgatory.touch("wait 2")
        assert [await client.answer() for _ in range(2)] == [(2, "wait 2"), (3, "end")]


async def test_a_wait_without_time_is_answered_in_its_turn() -> None:
    def handler(request: Any, context: Any) -> Any:
        return Wait((), 0, lambda expired: echoed(f"late {request.key}"))

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        client = await server.client()
        await client.send(*(ask(n, str(n)) for n in range(3)))
        assert [await client.answer() for _ in range(3)] == [(n, f"late {n}") for n in range(3)]


async def test_one_connection_that_waits_does_not_hold_another() -> None:
    _, handlers = held()
    async with serving(handlers) as server:
        first, second = await server.client(), await server.client()
        await first.send(ask(1, "wait"))
        await until(lambda: server.purgatory.parked, "the first waits")
        assert await second.echo(2, "k") == (2, "k")


async def test_a_request_without_an_answer_is_passed_over() -> None:
    def handler(request: Any, context: Any) -> Any:
        return NO_RESPONSE if request.key == "silent" else echoed(request.key)

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        client = await server.client()
        await client.send(ask(1, "silent"), ask(2, "k"))
        assert await client.answer() == (2, "k")


# ---- bounds


async def test_a_client_that_does_not_read_is_not_served_on() -> None:
    handler, handlers = held()
    answer_bytes, requests = 30_000, 2000
    async with serving(handlers, socket_send_buffer_bytes="102400") as server:
        slow, other = await server.client(receive_buffer_bytes=10_000), await server.client()
        key = "k" * answer_bytes
        sending = asyncio.ensure_future(slow.send(*(ask(n, key) for n in range(requests))))
        for n in range(200):
            await other.echo(n)
        served_unread = handler.served.count(key)
        kernel_bytes = 2 * server.config.socket_send_buffer_bytes + 200_000
        assert served_unread * answer_bytes < kernel_bytes + 4 * JOINED_BYTES
        for n in range(requests):
            assert await slow.answer() == (n, key)
        await sending


async def test_small_requests_with_large_answers_are_not_answered_into_memory() -> None:
    """One read brings all requests into the broker; most must wait there without a response."""
    asked: list[int] = []

    def handler(request: Any, context: Any) -> Any:
        asked.append(1)
        return echoed("x" * 30_000)

    async with serving(
        {ApiKey.FIND_COORDINATOR: handler}, socket_send_buffer_bytes="102400"
    ) as server:
        slow, other = await server.client(receive_buffer_bytes=10_000), await server.client()
        await slow.send(*(ask(n) for n in range(1000)))
        for n in range(50):
            await other.send(ask(n))
            await other.receive()
        assert len(asked) < 50 + 40
        for n in range(1000):
            assert (await slow.answer())[0] == n


async def test_a_connection_with_requests_held_is_read_no_further() -> None:
    handler, handlers = held()
    async with serving(handlers) as server:
        client, other = await server.client(), await server.client()
        await client.send(ask(0, "wait"))
        await until(lambda: server.purgatory.parked, "it waits")
        filler = ask(1, "f" * 30_000)
        sending = asyncio.ensure_future(client.send(*([filler] * 1000)))
        for n in range(200):
            await other.echo(n)
        assert not sending.done(), "30 MB went into the broker or the kernel"
        handler.answer(server.purgatory, "wait")
        for _ in range(1001):
            await client.answer()
        await sending


# ---- memory

MEGABYTE = 1_000_000
READ_AT_FIRST = 64 * 1024
SHORT = {"queued_max_request_bytes": "1000000", "socket_request_max_bytes": "1000000"}


async def test_a_frame_that_was_only_announced_takes_no_memory() -> None:
    async with serving(ECHO) as server:
        clients = [await server.client() for _ in range(10)]
        for client in clients:
            await client.send((100 * MEGABYTE).to_bytes(4, "big"))
        other = await server.client()
        await other.echo()
        assert server.listener.queued.total == 0


@pytest.mark.fault("security-2")
async def test_while_frames_under_way_fill_their_part_one_is_read_and_those_between_frames() -> (
    None
):
    frame = (900_000).to_bytes(4, "big") + bytes(900_000)
    async with serving(ECHO, **SHORT) as server:
        queued = server.listener.queued
        other = await server.client()
        await other.echo()
        first, second = await server.client(), await server.client()
        await first.send(frame[:600_000])
        await until(lambda: queued.total == 599_996, "the first is read")
        sending = asyncio.ensure_future(second.send(frame))
        await until(lambda: queued.total > 600_000 + READ_AT_FIRST, "the second is read")
        taken = queued.total

        for n in range(100):
            assert await other.echo(n, "k") == (n, "k")
        assert queued.total == taken, "the second is not read"

        await first.send(frame[600_000:])  # which is no request: it is closed, and makes room
        assert await first.is_closed()
        await sending
        assert await second.is_closed()
        assert queued.total == 0


async def test_what_a_parked_request_and_a_slow_reader_hold_is_counted() -> None:
    handler, handlers = held()
    # The kernel's own buffers may take all of the answers.
    async with serving(handlers, socket_send_buffer_bytes="100000") as server:
        queued = server.listener.queued
        client, slow = await server.client(), await server.client(receive_buffer_bytes=10_000)
        parked = ask(1, "wait" + "k" * 20_000)
        await client.send(parked)
        await until(lambda: server.purgatory.parked, "it waits")
        assert queued.total == len(parked) - 4
        handler.answer(server.purgatory, "wait" + "k" * 20_000)
        await client.answer()
        assert queued.total == 0

        await slow.send(*(ask(n, "k" * 30_000) for n in range(100)))
        await until(lambda: queued.total, "answers are not taken")
        for _ in range(100):
            await slow.answer()
        await until(lambda: not queued.total, "all are taken")


async def test_a_connection_that_is_lost_gives_back_what_it_held() -> None:
    async with serving(ECHO) as server:
        client = await server.client()
        await client.send((900_000).to_bytes(4, "big") + bytes(100_000))
        await until(lambda: server.listener.queued.total == 100_000, "a part has come")
        client.close()
        await until(lambda: not server.listener.queued.total, "it is forgotten")


# ---- how it ends


async def closes(
    server: Server, caplog: pytest.LogCaptureFixture, *frames: bytes, answers: int = 0
) -> str:
    """Send frames; the broker must close after so many responses. Return the reason it logged."""
    client = await server.client()
    await client.send(*frames)
    for n in range(answers):
        assert await client.answer() == (n, "before")
    assert await client.is_closed()
    (record,) = [r for r in caplog.records if r.name == "broker.network.connection"]
    prefix = f"{client.name}: connection closed: "
    assert record.getMessage().startswith(prefix)
    assert record.levelno == logging.WARNING
    return record.getMessage().removeprefix(prefix)


@pytest.mark.parametrize("size", [-1, 1001])
async def test_a_frame_of_an_impossible_size_ends_the_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(ECHO, socket_request_max_bytes="1000") as server:
        why = await closes(server, caplog, size.to_bytes(4, "big", signed=True))
    assert why == f"frame of {size} bytes, allowed are 0 to 1000"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("00000000", "request header"),
        ("00000008 03e7 0000 00000001", "API key 999 is not served"),
        ("0000000a 000a 0063 00000001 ffff", "FIND_COORDINATOR version 99 is not served"),
        ("0000000b 000a 0000 00000001 ffff ff", "FIND_COORDINATOR version 0: "),
        ("00000005 4745542f20", "request header"),
    ],
)
async def test_a_request_that_cannot_be_read_ends_the_connection_after_those_before_it(
    frame: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = [ask(n, "before") for n in range(3)]
    async with serving(ECHO) as server:
        why = await closes(server, caplog, *before, bytes.fromhex(frame), ask(9), answers=3)
    assert why.startswith(reason)


async def test_a_failed_request_that_wants_no_answer_ends_the_connection_after_those_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(request: Any, context: Any) -> Any:
        return echoed(request.key) if request.key == "before" else Close("an acks=0 request failed")

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        why = await closes(server, caplog, ask(0, "before"), ask(1), ask(2), answers=1)
    assert why == "an acks=0 request failed"


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after a wait"])
async def test_a_request_that_fails_as_nobody_expected_is_answered_and_ends_the_connection(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(expired: bool) -> Any:
        raise KeyError("a bug")

    def handler(request: Any, context: Any) -> Any:
        return Wait((), 1, fails) if late else fails(False)

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        client = await server.client()
        await client.send(ask(5), ask(6))
        _, response = read_response(ApiKey.FIND_COORDINATOR, 0, await client.receive())
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await client.is_closed()


@pytest.mark.parametrize("answer", [echoed("x" * 40_000), attrs.NOTHING], ids=["long", "nonsense"])
async def test_an_answer_that_cannot_be_written_ends_the_connection_after_those_before_it(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(request: Any, context: Any) -> Any:
        return echoed(request.key) if request.key == "before" else answer

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        why = await closes(server, caplog, ask(0, "before"), ask(1), ask(2), answers=1)
    assert why.startswith("a response cannot be sent: ")


async def test_an_answer_that_cannot_be_written_does_no_harm_to_who_set_it_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler, handlers = held()
    async with serving(handlers) as server:
        first, second = await server.client(), await server.client()
        await first.send(ask(1, "wait"))
        await second.send(ask(2, "wait"))
        await until(lambda: server.purgatory.parked == 2, "both wait")
        handler.answers["wait"] = echoed("x" * 40_000)
        server.purgatory.touch("wait")
        assert await first.is_closed()
        assert await second.is_closed()


@pytest.mark.fault("security-3")
@pytest.mark.parametrize("end", ["client resets", "time is up"])
async def test_a_request_counts_for_as_long_as_work_holds_it(end: str) -> None:
    may_end = asyncio.Event()
    purgatories: list[Purgatory] = []

    def handler(request: Any, context: Any) -> Any:
        async def work() -> Any:
            await may_end.wait()
            return echoed(request.key)

        made = Deferred(asyncio.ensure_future, lambda key: purgatories[0].touch(key), None)  # type: ignore[arg-type]
        timeout_ms = 1 if end == "time is up" else WAIT_MS
        return made.respond(work(), timeout_ms, lambda: echoed("late"))

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        purgatories.append(server.purgatory)
        queued = server.listener.queued
        client = await server.client()
        frame = ask(1, "k" * 20_000)
        await client.send(frame)
        if end == "time is up":
            assert await client.answer() == (1, "late")
        else:
            await until(lambda: server.purgatory.parked, "it waits")
            client.reset()
            await until(lambda: not server.listener.connections, "the connection is forgotten")
        assert queued.total == len(frame) - 4

        may_end.set()
        await until(lambda: not queued.total, "nothing holds it")


@pytest.mark.parametrize("waits", [1, 2])
async def test_who_has_closed_its_side_has_its_response_when_the_wait_ends_soon(
    waits: int,
) -> None:
    """Kafka does not read while a request is in work, and so it does not see the end before."""
    left = waits

    def wait(expired: bool = False) -> Any:
        nonlocal left
        left -= 1
        return Wait(("k",), int(LAST_WAIT_S * 1000), wait) if left >= 0 else echoed("k")

    async with serving({ApiKey.FIND_COORDINATOR: lambda request, context: wait()}) as server:
        client = await server.client()
        await client.send(ask(1, "k"))
        await until(lambda: server.purgatory.parked, "it waits")
        (connection,) = server.listener.connections
        client.sock.shutdown(socket.SHUT_WR)
        await until(lambda: connection._has_ended, "the end is read")
        for _ in range(waits):
            assert server.purgatory.parked == 1
            server.purgatory.touch("k")
        assert await client.answer() == (1, "k")
        assert await client.is_closed()
        await until(lambda: not server.listener.connections, "the connection is forgotten")
        assert server.listener.queued.total == 0


async def test_who_has_closed_its_side_is_forgotten_when_the_next_wait_is_long() -> None:
    cancelled: list[str] = []
    long = Wait(("k",), WAIT_MS, lambda expired: None, on_cancel=lambda: cancelled.append("long"))
    short = Wait(("k",), int(LAST_WAIT_S * 1000), lambda expired: long)

    async with serving({ApiKey.FIND_COORDINATOR: lambda request, context: short}) as server:
        client = await server.client()
        await client.send(ask(1, "k"))
        await until(lambda: server.purgatory.parked, "it waits")
        (connection,) = server.listener.connections
        client.close()
        await until(lambda: connection._has_ended, "the end is read")
        server.purgatory.touch("k")
        await until(lambda: not server.listener.connections, "the connection is forgotten")
        assert cancelled == ["long"]
        assert server.purgatory.parked == 0


@pytest.mark.parametrize("vanish", [Client.close, Client.reset], ids=["closes", "resets"])
async def test_a_client_that_vanishes_while_its_request_waits_is_forgotten(
    vanish: Callable[[Client], None],
) -> None:
    handler, handlers = held()
    async with serving(handlers) as server:
        client = await server.client()
        await client.send(ask(1, "wait"))
        await until(lambda: server.purgatory.parked, "it waits")
        vanish(client)
        await until(lambda: not server.listener.connections, "the connection is forgotten")
        assert server.purgatory.parked == 0
        handler.answer(server.purgatory, "wait")


async def test_a_client_that_vanishes_with_requests_held_is_found_out_when_they_are_answered() -> (
    None
):
    handler, handlers = held()
    async with serving(handlers) as server:
        client = await server.client()
        await client.send(ask(1, "wait"), *(ask(n, "k") for n in range(10)))
        await until(lambda: server.purgatory.parked, "it waits")
        client.reset()
        handler.answer(server.purgatory, "wait")
        await until(lambda: not server.listener.connections, "the connection is forgotten")


async def test_who_closes_in_the_middle_of_a_request_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "broker.network.connection")
    async with serving(ECHO) as server:
        client = await server.client()
        name = client.name
        await client.send(ask(1)[:-1])
        client.close()
        await until(lambda: caplog.records, "it is logged")
    assert caplog.messages == [f"{name}: the client closed the connection within a request"]


async def test_a_client_that_closes_between_requests_is_nothing_to_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "broker.network.connection")
    async with serving(ECHO) as server:
        client = await server.client()
        await client.echo()
        client.close()
        await until(lambda: not server.listener.connections, "the connection is forgotten")
    assert caplog.messages == []
