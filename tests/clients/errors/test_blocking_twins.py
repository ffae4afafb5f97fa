"""The blocking twins of all clients raise KgroupErrors too."""

import asyncio
import inspect
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from clients import blocking
from clients.admin import LATEST_TIME
from clients.errors import KgroupError, ZooKeeperError
from groups.zookeeper.filters import Whitelist
from tests.clients.errors.tried_calls import (
    ADMIN,
    CODES,
    CONNECTOR,
    IMPATIENT,
    MEMBER,
    OLD_PRODUCER,
    P0,
    PRODUCER,
    SIMPLE_CONSUMER,
    TRANSACTIONS,
    encoded_batch,
    tree_with,
)
from tests.clients.lying_broker import (
    HONEST,
    Lie,
    LyingBroker,
    empty,
    garbage_later,
    hanging_up,
    inventing,
    refusing,
)
from tests.clients.scripted_broker import ScriptedBroker


@contextmanager
def broker_in_a_thread(lie: Lie) -> Iterator[str]:
    """Yield the address of a lying broker that serves in a thread."""
    started: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async with LyingBroker(lie, ScriptedBroker({"t": 2})) as broker:
            done = asyncio.Event()
            started.put((broker.bootstrap, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    bootstrap, loop, done = started.get()
    try:
        yield bootstrap
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


def blocking_outcomes(client: Any, calls: Mapping[str, Callable[[Any], Any]]) -> None:
    for name, call in calls.items():
        with suppress(KgroupError):
            assert not inspect.isawaitable(call(client)), f"{name} was not tried"


def encoded(producer: Any) -> None:
    builder, delivery = encoded_batch()
    producer.send_batch(P0, builder, delivery)
    producer.flush()
    if delivery.error is not None:
        raise delivery.error


def in_transaction(producer: Any) -> None:
    with producer.transaction():
        producer.send("t", b"v")


BLOCKING_LIES = [hanging_up, garbage_later, empty, refusing(CODES[0]), inventing(1, HONEST)]


@pytest.mark.parametrize("lie", BLOCKING_LIES)
def test_the_blocking_twins_raise_kgroup_errors_too(lie: Lie) -> None:
    sending = {
        **PRODUCER,
        "send": lambda producer: producer.send("t", b"v").result(5),
        "send_many": lambda producer: producer.send_many("t", [b"v", b"w"]).result(5),
        "send_batch": encoded,
    }
    with broker_in_a_thread(lie) as bootstrap:
        settings = {"bootstrap.servers": bootstrap, **IMPATIENT}
        with blocking.Admin(settings) as admin:
            blocking_outcomes(admin, ADMIN)
        host, port = bootstrap.split(":")
        with blocking.SimpleConsumer(host, int(port), 30) as consumer:
            blocking_outcomes(consumer, SIMPLE_CONSUMER)
        with suppress(KgroupError):
            blocking.SimpleConsumer.for_leader(settings, "t", 0).close()
        limits = {"max.block.ms": 60, "delivery.timeout.ms": 60}
        with blocking.Producer({**settings, **limits}) as producer:
            blocking_outcomes(producer, sending)
        with (
            suppress(KgroupError),
            blocking.Producer({**settings, **limits, "transactional.id": "x"}) as producer,
        ):
            blocking_outcomes(producer, {**TRANSACTIONS, "transaction": in_transaction, **sending})


def joined(connector: Any) -> Any:
    """Join, and wait for a message."""
    with suppress(KgroupError):
        next(connector.create_message_streams({"t": 1})["t"][0])
    return connector


def tried_where_it_has_joined(act: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    """Join, and do something with what is ours by then."""
    return lambda c: act(joined(c), c.assignment())


BLOCKING_CONNECTOR: Mapping[str, Callable[[Any], Any]] = {
    **CONNECTOR,
    "group_metadata": lambda c: c.group_metadata(),
    "assignment": lambda c: c.assignment(),
    "position": tried_where_it_has_joined(lambda c, ours: [c.position(p) for p in ours]),
    "seek_to_committed": lambda c: joined(c).seek_to_committed(),
    "pause": tried_where_it_has_joined(lambda c, ours: c.pause(*ours)),
    "resume": tried_where_it_has_joined(lambda c, ours: c.resume(*ours)),
    "seek": tried_where_it_has_joined(lambda c, ours: [c.seek(p, LATEST_TIME) for p in ours]),
    "set_consumer_rebalance_listener": lambda c: c.set_consumer_rebalance_listener(None),
    "create_message_streams": lambda c: next(c.create_message_streams({"t": 1})["t"][0]),
    "create_message_streams_by_filter": lambda c: next(
        c.create_message_streams_by_filter(Whitelist("t"))[0]
    ),
}


@pytest.mark.parametrize("lie", BLOCKING_LIES)
def test_the_blocking_member_and_old_producer_raise_kgroup_errors_too(lie: Lie) -> None:
    with broker_in_a_thread(lie) as bootstrap:
        for name, call in BLOCKING_CONNECTOR.items():
            session = asyncio.run(tree_with())
            member = {**MEMBER, "bootstrap.servers": bootstrap}
            with blocking.ConsumerConnector(member, zk=session) as connector:
                blocking_outcomes(connector, {name: call})
        settings = {
            "bootstrap.servers": bootstrap,
            "producer.type": "sync",
            "retry.backoff.ms": 5,
            "request.timeout.ms": 30,
            "message.send.max.retries": 1,
        }
        with blocking.Producer(settings) as producer:
            blocking_outcomes(producer, OLD_PRODUCER)


def test_a_blocking_member_without_zookeeper_raises_a_zookeeper_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    connector = blocking.ConsumerConnector({**MEMBER, "zookeeper.connect": f"127.0.0.1:{port}"})
    for name in ("create_message_streams", "create_message_streams_by_filter", "commit_offsets"):
        with pytest.raises(ZooKeeperError):
            BLOCKING_CONNECTOR[name](connector)
    connector.close()
