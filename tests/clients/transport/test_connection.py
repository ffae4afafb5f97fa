"""A connection against a scripted peer: order, versions, time-outs, ends."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from clients.errors import ConnectionFailed, NoSuchAddress, RequestTimedOut, UnsupportedApi
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.produce import ProduceRequest
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker, all_versions
from tests.stage.clock import OwnTimeLoop, run_in_own_time


def refused(*keys: ApiVersionsResponseKey) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)


def coordinator_at(port: int) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=port)


async def opened(broker: ScriptedBroker, **options: Any) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, **options)


def test_pipelined_requests_get_their_own_responses_in_order() -> None:
    async def scenario() -> list[int]:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: coordinator_at(int(r.key))
            connection = await opened(broker)
            sent = [connection.send(FindCoordinatorRequest(key=str(n))) for n in range(50)]
            responses = await asyncio.gather(*sent)
            await connection.close()
            return [response.port for response in responses]

    assert run_in_own_time(scenario()) == list(range(50))


def test_broker_that_refuses_our_version_is_asked_again_in_the_one_it_lists() -> None:
    async def scenario() -> list[int]:
        async with ScriptedBroker() as broker:
            listed = ApiVersionsResponseKey(api_key=18, min_version=0, max_version=2)
            answers = [refused(listed), all_versions()]
            broker.answers[ApiKey.API_VERSIONS] = lambda r: answers.pop(0)
            connection = await opened(broker)
            await connection.close()
            return [header.api_version for header, _ in broker.requests]

    assert run_in_own_time(scenario()) == [3, 2]


def test_broker_that_refuses_our_version_and_lists_nothing_is_asked_version_0() -> None:
    async def scenario() -> list[int]:
        async with ScriptedBroker() as broker:
            answers = [refused(), all_versions()]
            broker.answers[ApiKey.API_VERSIONS] = lambda r: answers.pop(0)
            connection = await opened(broker)
            await connection.close()
            return [header.api_version for header, _ in broker.requests]

    assert run_in_own_time(scenario()) == [3, 0]


def test_broker_that_hangs_up_on_our_version_is_asked_version_0_on_a_new_connection() -> None:
    async def scenario() -> tuple[list[int], int]:
        async with ScriptedBroker() as broker:
            answers = [HANG_UP, all_versions()]
            broker.answers[ApiKey.API_VERSIONS] = lambda r: answers.pop(0)
            connection = await opened(broker)
            await connection.close()
            return [header.api_version for header, _ in broker.requests], broker.connections

    assert run_in_own_time(scenario()) == ([3, 0], 2)


def test_request_goes_out_in_the_highest_version_both_sides_speak() -> None:
    async def scenario() -> int:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(FIND_COORDINATOR=(0, 1))
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: coordinator_at(1)
            connection = await opened(broker)
            await connection.call(FindCoordinatorRequest(key="g"))
            await connection.close()
            return broker.requests[-1][0].api_version

    assert run_in_own_time(scenario()) == 1


def test_api_whose_versions_do_not_meet_ours_is_refused_before_sending() -> None:
    async def scenario() -> int:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.API_VERSIONS] = lambda r: all_versions(FIND_COORDINATOR=(7, 9))
            connection = await opened(broker)
            with pytest.raises(UnsupportedApi, match="speaks 7-9 of FIND_COORDINATOR"):
                connection.send(FindCoordinatorRequest(key="g"))
            await connection.close()
            return len(broker.requests)

    assert run_in_own_time(scenario()) == 1


def test_version_that_no_api_has_is_refused_before_sending() -> None:
    async def scenario() -> int:
        async with ScriptedBroker() as broker:
            connection = await opened(broker)
            with pytest.raises(
                ValueError, match=r"^FIND_COORDINATOR has the versions 0 to \d, not 99$"
            ):
                connection.send(FindCoordinatorRequest(key="g"), version=99)
            await connection.close()
            return len(broker.requests)

    assert run_in_own_time(scenario()) == 1


@pytest.mark.fault("groups-5")
def test_response_that_came_while_the_client_stood_still_is_not_late() -> None:
    async def scenario() -> Any:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.LIST_GROUPS] = lambda r: ListGroupsResponse(
                error_code=0, groups=[]
            )
            connection = await opened(broker)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, OwnTimeLoop)
            sent = connection.send(ListGroupsRequest(), timeout_ms=2_000)
            loop.work(12)
            response = await sent
            await connection.close()
            return response

    assert run_in_own_time(scenario()).error_code == ErrorCode.NONE


def test_unanswered_request_closes_the_connection_and_fails_all_in_flight() -> None:
    async def scenario() -> tuple[Any, bool]:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.LIST_GROUPS] = lambda r: SILENCE
            connection = await opened(broker)
            slow = connection.send(ListGroupsRequest(), timeout_ms=60_000)
            late = connection.send(ListGroupsRequest(), timeout_ms=20)
            results = await asyncio.gather(slow, late, return_exceptions=True)
            return results, connection.closed

    results, closed = run_in_own_time(scenario())
    assert closed
    assert [type(result) for result in results] == [RequestTimedOut, RequestTimedOut]
    assert "LIST_GROUPS was not answered in time" in str(results[0])


def test_lost_connection_fails_what_is_in_flight_naming_host_and_port() -> None:
    async def scenario() -> tuple[int, ConnectionFailed]:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.LIST_GROUPS] = lambda r: HANG_UP
            connection = await opened(broker)
            with pytest.raises(ConnectionFailed) as failed:
                await connection.call(ListGroupsRequest())
            with pytest.raises(ConnectionFailed):
                connection.send(ListGroupsRequest())
            return broker.port, failed.value

    port, failure = run_in_own_time(scenario())
    assert (failure.host, failure.port) == ("127.0.0.1", port)
    assert str(failure).startswith(f"127.0.0.1:{port}: ")


def test_refused_connection_names_host_and_port() -> None:
    async def scenario() -> tuple[int, str]:
        async with ScriptedBroker() as broker:
            port = broker.port
        with pytest.raises(ConnectionFailed) as failed:
            await Connection.open("127.0.0.1", port)
        return port, str(failed.value)

    port, text = run_in_own_time(scenario())
    assert text.startswith(f"127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 1), ("x" * 300, 1), ("a\0b", 1), ("127.0.0.1", 65536)]
)
def test_address_that_cannot_be_is_a_failed_connection(host: str, port: int) -> None:
    with pytest.raises(NoSuchAddress) as failed:
        run_in_own_time(Connection.open(host, port))
    assert (failed.value.host, failed.value.port) == (host, port)
    assert failed.value.reason


def test_peer_that_does_not_accept_is_given_up_in_time() -> None:
    """KAFKA-1733: connecting to a host that says nothing blocked for ever."""

    async def scenario(port: int) -> str:
        with pytest.raises(ConnectionFailed) as failed:
            await Connection.open("127.0.0.1", port, connect_timeout_ms=50)
        return str(failed.value)

    with contextlib.ExitStack() as sockets:
        deaf = sockets.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # more than wait to be accepted: the system answers no more of them
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        port = deaf.getsockname()[1]
        assert run_in_own_time(scenario(port)).startswith(f"127.0.0.1:{port}: ")


def test_response_larger_than_the_bound_closes_the_connection() -> None:
    async def scenario() -> str:
        async with ScriptedBroker() as broker:
            huge = FindCoordinatorResponse(error_code=0, node_id=1, host="h" * 5000, port=1)
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: huge
            connection = await opened(broker, max_frame_bytes=4096)
            with pytest.raises(ConnectionFailed) as failed:
                await connection.call(FindCoordinatorRequest(key="g"))
            assert connection.closed
            return str(failed.value)

    assert "frame of" in run_in_own_time(scenario())


def test_response_cut_short_closes_the_connection() -> None:
    async def scenario() -> bool:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: ListGroupsResponse(
                error_code=0, groups=[]
            )
            connection = await opened(broker)
            with pytest.raises(ConnectionFailed, match="FindCoordinatorResponse"):
                await connection.call(FindCoordinatorRequest(key="g"))
            return connection.closed

    assert run_in_own_time(scenario())


def test_response_with_a_foreign_correlation_id_closes_the_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            connection = await opened(broker)
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: coordinator_at(1)
            broker.correlation_shift = 5
            with pytest.raises(ConnectionFailed, match=r"response 7, expected 2"):
                await connection.call(FindCoordinatorRequest(key="g"))

    run_in_own_time(scenario())


def test_cancelled_call_leaves_the_connection_in_step() -> None:
    async def scenario() -> int:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.FIND_COORDINATOR] = lambda r: coordinator_at(int(r.key))
            connection = await opened(broker)
            connection.send(FindCoordinatorRequest(key="1")).cancel()
            response = await connection.call(FindCoordinatorRequest(key="2"))
            await connection.close()
            port: int = response.port
            return port

    assert run_in_own_time(scenario()) == 2


def test_produce_without_acks_is_done_when_sent_and_does_not_disturb_the_order() -> None:
    async def scenario() -> tuple[Any, Any]:
        async with ScriptedBroker({"t": 1}) as broker:
            connection = await opened(broker)
            produced = connection.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
            coordinator = connection.send(FindCoordinatorRequest(key="g"))
            result = await produced, (await coordinator).port == broker.port
            await connection.close()
            return result

    assert run_in_own_time(scenario()) == (None, True)


def test_what_was_sent_before_close_is_written() -> None:
    async def scenario() -> int:
        async with ScriptedBroker({"t": 1}) as broker:
            connection = await opened(broker)
            connection.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
            await connection.close()
            return len(await broker.received(ApiKey.PRODUCE))

    assert run_in_own_time(scenario()) == 1
