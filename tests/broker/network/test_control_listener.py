"""A broker takes control requests on any listener, if they are the active controller's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.server import Broker
from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaRequestTopic
from tests.broker.replication.replicas import leader_and_isr, update_metadata
from tests.stage.broker import Site
from tests.stage.waiting import until
from zk.znodes import ControllerEpoch

LISTENERS = {
    "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
WITH_CONTROL_PLANE = {
    "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CONTROL://127.0.0.1:0",
    "listener_security_protocol_map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
    "control_plane_listener_name": "CONTROL",
}
PRESENT = 5

REQUESTS = [
    leader_and_isr("t", controller_epoch=PRESENT),
    update_metadata("t", controller_epoch=PRESENT),
    StopReplicaRequest(
        controller_id=0,
        controller_epoch=PRESENT,
        delete_partitions=True,
        topics=[StopReplicaRequestTopic(name="t", partition_indexes=[0])],
    ),
]


@contextlib.asynccontextmanager
async def connected_by(site: Site, listener: str) -> AsyncIterator[Connection]:
    node = site.node()
    assert node is not None
    (endpoint,) = [endpoint for endpoint in node[0].endpoints if endpoint.listener == listener]
    connection = await Connection.open(endpoint.host, endpoint.port)
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def controlled_broker(
    site: Site, listeners: Mapping[str, str] = LISTENERS
) -> AsyncIterator[Broker]:
    """Run a broker that is its own controller, of epoch 5, and has its first control request."""
    session = site.zookeeper.session()
    await session.start()
    await session.create(ControllerEpoch.path(), b"%d" % (PRESENT - 1))
    async with site.running(1, **listeners) as broker:
        async with connected_by(site, "CLIENT") as client:

            async def has_controller() -> bool:
                answer = await client.call(MetadataRequest(topics=[]))
                return bool(answer.controller_id == 1)

            await until(has_controller, "the controller has sent its first request")
        yield broker


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
async def test_a_controller_whose_settings_name_another_listener_is_obeyed(
    tmp_path: Path, request_: Any
) -> None:
    """While the listener between brokers is changed, that of a controller is not that of all."""
    site = Site(tmp_path)
    async with controlled_broker(site), connected_by(site, "CLIENT") as client:
        answer = await client.call(request_)
    assert ErrorCode.of(answer.error_code) is ErrorCode.NONE


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
async def test_a_controller_that_was_replaced_is_refused_among_brokers(
    tmp_path: Path, request_: Any
) -> None:
    site = Site(tmp_path)
    old = attrs.evolve(request_, controller_epoch=PRESENT - 1)
    async with controlled_broker(site), connected_by(site, "INTERNAL") as peer:
        answer = await peer.call(old)
    assert ErrorCode.of(answer.error_code) is ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("listener", ["CLIENT", "INTERNAL", "CONTROL"])
async def test_with_a_control_plane_controllers_without_one_are_still_taken(
    tmp_path: Path, listener: str
) -> None:
    """Brokers get the setting one after the other, and any of them may be the controller."""
    site = Site(tmp_path)
    async with (
        controlled_broker(site, WITH_CONTROL_PLANE),
        connected_by(site, listener) as peer,
    ):
        answer = await peer.call(update_metadata("t", controller_epoch=PRESENT + 1))
    assert ErrorCode.of(answer.error_code) is ErrorCode.NONE
