"""Finding brokers by what is registered in ZooKeeper."""

import pytest

from clients.cluster import Cluster
from clients.config import ClusterConfig
from clients.errors import NoBrokersAvailable
from clients.registered_brokers import brokers_registered_at, registered_brokers
from tests.groups.zookeeper.tree.group_tree import Counting
from tests.stage.clock import run_in_own_time
from zk.api import Stat, Watch
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import BrokerId, Endpoint


async def session_with(**brokers: bytes) -> MemorySession:
    """Return a session on a tree with these registrations: `_1=b"..."`."""
    session = MemoryZooKeeper().session()
    await session.start()
    await session.create("/brokers", None)
    await session.create("/brokers/ids", None)
    for name, content in brokers.items():
        await session.create(f"/brokers/ids/{name[1:]}", content)
    return session


def registration(*endpoints: Endpoint) -> bytes:
    return BrokerId(endpoints, 0).encode()


async def test_every_plain_listener_is_an_address() -> None:
    zk = await session_with(
        _0=registration(Endpoint("PLAINTEXT", "a", 1), Endpoint("TLS", "a", 2, "SSL")),
        _1=registration(Endpoint("INSIDE", "b", 3, "PLAINTEXT"), Endpoint("PLAINTEXT", "b", 4)),
        _2=b'{"version":1,"host":"c","port":5,"jmx_port":-1,"timestamp":"0"}',
    )
    assert await registered_brokers(zk) == ["a:1", "b:3", "b:4", "c:5"]


async def test_a_client_of_another_protocol_finds_the_listeners_of_that() -> None:
    zk = await session_with(
        _0=registration(Endpoint("PLAINTEXT", "a", 1), Endpoint("LOGIN", "a", 2, "SASL_PLAINTEXT")),
        _1=registration(Endpoint("PLAINTEXT", "b", 4)),
    )
    assert await registered_brokers(zk, "SASL_PLAINTEXT") == ["a:2"]
    with pytest.raises(NoBrokersAvailable, match="with a listener of SASL_SSL"):
        await registered_brokers(zk, "SASL_SSL")


async def test_brokers_with_other_listeners_alone_are_not_called_unregistered() -> None:
    zk = await session_with(
        _0=registration(Endpoint("LOGIN", "a", 2, "SASL_SSL")),
        _1=registration(Endpoint("TLS", "b", 4, "SSL"), Endpoint("LOGIN", "b", 2, "SASL_SSL")),
    )
    with pytest.raises(NoBrokersAvailable) as error:
        await registered_brokers(zk)
    assert str(error.value) == (
        "no broker is registered in ZooKeeper with a listener of PLAINTEXT, only of SASL_SSL and "
        "SSL: set security.protocol, and the login or certificates that it needs (commands read "
        "them from the file of --command-config)"
    )


async def test_all_registrations_are_read_in_one_request() -> None:
    brokers = {f"_{n}": registration(Endpoint("PLAINTEXT", "h", 1 + n)) for n in range(20)}
    counting = Counting(await session_with(**brokers))
    assert len(await registered_brokers(counting)) == 20  # type: ignore[arg-type]
    assert counting.calls == {"children": 1, "get_many": 1}


async def test_registration_that_cannot_be_read_is_left_out() -> None:
    zk = await session_with(_0=b"nonsense", _1=registration(Endpoint("PLAINTEXT", "b", 4)))
    assert await registered_brokers(zk) == ["b:4"]


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("a..b", 9092), ("a", 0), ("a", 65536)])
async def test_registration_that_names_no_address_is_left_out_with_a_line_in_the_log(
    host: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    zk = await session_with(
        _0=registration(Endpoint("PLAINTEXT", host, port)),
        _1=registration(Endpoint("PLAINTEXT", "b", 4)),
    )
    assert await registered_brokers(zk) == ["b:4"]
    (line,) = caplog.messages
    assert line == f"broker left out: /brokers/ids/0: '{host}:{port}' is not an address"


async def test_broker_that_goes_while_they_are_read_is_left_out() -> None:
    zk = await session_with(_0=b"", _1=registration(Endpoint("PLAINTEXT", "b", 4)))
    children = zk.children

    async def and_one_goes(path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        listed = await children(path, watch)
        await zk.delete(f"{path}/0")
        return listed

    zk.children = and_one_goes  # type: ignore[method-assign]
    assert await registered_brokers(zk) == ["b:4"]


async def test_without_a_broker_the_error_names_what_could_not_be_read() -> None:
    zk = await session_with(_7=b"nonsense")
    with pytest.raises(NoBrokersAvailable, match=r"no broker is registered.*/brokers/ids/7"):
        await registered_brokers(zk)


async def test_tree_without_brokers_is_no_error_of_zookeeper() -> None:
    zk = MemoryZooKeeper().session()
    await zk.start()
    with pytest.raises(NoBrokersAvailable, match="no broker is registered"):
        await registered_brokers(zk)


async def test_zookeeper_that_does_not_answer_is_said_to_be_the_reason() -> None:
    with pytest.raises(NoBrokersAvailable, match=r"ZooKeeper: .*127\.0\.0\.1:1"):
        await brokers_registered_at("127.0.0.1:1", 100)


def test_cluster_asks_zookeeper_no_more_often_than_the_longest_backoff() -> None:
    asked = []

    async def find_brokers() -> list[str]:
        asked.append(1)
        raise NoBrokersAvailable("ZooKeeper: nobody listens")

    async def scenario() -> None:
        cluster = Cluster((), config=ClusterConfig(), find_brokers=find_brokers)
        # The second time it is not asked, and the reason is the same.
        for _ in range(2):
            with pytest.raises(NoBrokersAvailable, match="ZooKeeper: nobody listens"):
                await cluster.refresh()

    run_in_own_time(scenario())
    assert asked == [1]
