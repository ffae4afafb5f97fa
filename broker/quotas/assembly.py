"""Build the quotas wing: quotas as ZooKeeper has them, the bills of requests, and the rates of
connections."""

from __future__ import annotations

from functools import partial

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.dispatch import Dispatcher
from broker.process.change_notifications import LOOK_INTERVAL_MS
from broker.process.periodic import run_every
from broker.process.process import Process
from broker.process.signals import Signals
from broker.quotas.charging import RequestBill
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.stored_quotas import StoredQuotas
from broker.settings.config import BrokerConfig
from broker.settings.entity_configs import CLIENTS, IPS, USERS
from zk.api import ZkSession


async def follow_quotas(
    *,
    config: BrokerConfig,
    dispatcher: Dispatcher,
    connections: ConnectionQuotas,
    process: Process,
    signals: Signals,
    zk: ZkSession,
) -> None:
    """Put the stored quotas into effect now, and each change of them from now on."""
    quotas = ClientQuotas(
        windows=config.quota_window_num,
        window_ms=1000 * config.quota_window_size_seconds,
        mutation_windows=config.controller_quota_window_num,
        mutation_window_ms=1000 * config.controller_quota_window_size_seconds,
        produce_default=config.quota_producer_default,
        fetch_default=config.quota_consumer_default,
    )

    open_bill = partial(RequestBill, quotas, process.monotonic_ms)

    def switch(is_on: bool) -> None:
        # While nobody has a quota nothing is charged, and requests may take the short way.
        dispatcher.open_bill = open_bill if is_on else None

    stored = StoredQuotas(zk, quotas, connections, process.spawn, switch, process.work.in_thread)
    look = run_every(LOOK_INTERVAL_MS, "look for unread quotas", stored.read_unread)
    process.spawn(look)
    signals.user_named.subscribe(lambda name: stored.entity_changed(f"{USERS}/{name}"))
    signals.client_named.subscribe(lambda name: stored.entity_changed(f"{CLIENTS}/{name}"))
    signals.ip_named.subscribe(lambda name: stored.entity_changed(f"{IPS}/{name}"))
    signals.settings_unsure.subscribe(stored.any_changed)
    await stored.read()
