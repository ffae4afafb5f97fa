"""Quotas as ZooKeeper has them: a node that cannot be followed is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas, Limits
from broker.quotas.client_entities import CONNECTION_RATE
from broker.quotas.client_quotas import ClientQuotas, QuotaKind
from broker.quotas.stored_quotas import StoredQuotas
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ClientEntity, EntityConfig

GOOD = "192.0.2.7"
RATE = {CONNECTION_RATE: "1"}


async def at_once(work: Callable[[], list[str]]) -> list[str]:
    return work()


def stored_quotas(zk: MemorySession) -> StoredQuotas:
    connections = ConnectionQuotas(ConnectionLimits(Limits(), {"PLAINTEXT": Limits()}))
    return StoredQuotas(
        zk, ClientQuotas(), connections, asyncio.ensure_future, lambda _: None, at_once
    )


async def session(*nodes: tuple[ClientEntity, Mapping[str, str]]) -> MemorySession:
    zk = MemoryZooKeeper().session()
    await zk.start()
    for entity, settings in nodes:
        await zk.create(entity.path(), EntityConfig(settings).encode(), make_parents=True)
    return zk


def has_a_quota(quotas: StoredQuotas, address: str) -> bool:
    """Return whether an address may not connect 20 times in the same ms."""
    admitted = [quotas.connections.admit("PLAINTEXT", address, 0) is None for _ in range(20)]
    return not all(admitted)


@pytest.mark.fault("strangers-25")
@pytest.mark.parametrize("host", ["a..b", 64 * "x", "no\0host", "no.host.invalid"])
async def test_an_address_that_is_none_is_logged_and_the_others_have_their_quotas(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = ClientEntity(ip=host), ClientEntity(ip=GOOD)
    quotas = stored_quotas(await session((bad, RATE), (good, RATE)))
    await quotas.read()
    assert caplog.messages[0].startswith(f"the quota of {host} is ignored: ")
    assert has_a_quota(quotas, GOOD)
    assert not has_a_quota(quotas, "192.0.2.8")


async def test_a_quota_that_is_not_a_number_is_logged_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Java writes NaN, and `float` reads it, but no time follows from it."""
    address, client = ClientEntity(ip=GOOD), ClientEntity(client_id="etl")
    rate = QuotaKind.PRODUCE.value
    quotas = stored_quotas(
        await session((address, {CONNECTION_RATE: "NaN"}), (client, {rate: "NaN"}))
    )
    await quotas.read()
    assert sorted(message.rpartition(": ")[2] for message in caplog.messages) == [
        f"{CONNECTION_RATE}=NaN is not a number",
        f"{rate}=NaN is not a number",
    ]
    assert not has_a_quota(quotas, GOOD)
    assert quotas.quotas.record(QuotaKind.PRODUCE, "u", "etl", 1e9, 0) == 0
