"""The brokers that a suite is run against: all ours, or all of stock Kafka 2.8.2."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import attrs

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.process import Process, spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from protocol.settings import format_properties
from tests.interop.handover import command_of
from tests.stage.waiting import block_until
from zk.embedded import EmbeddedZooKeeper

START_S = 120.0
"""Several JVMs that start at once on a busy machine."""

_REPLICAS = 3
_BROKERS, _CLIENTS = "BROKERS", "CLIENTS"


@attrs.frozen
class Wanted:
    """What a suite asks of its brokers: how many there are, from which id on, and their settings.

    - `addresses`: where clients find them, if that is not where they listen: behind a proxy.
    - `port`: where the first one listens, the others at the next ones; 0 is anywhere.
    - `settings_of`: what a broker has besides, by its id.
    """

    brokers: int = 1
    first_id: int = 0
    settings: Mapping[str, str] = attrs.field(factory=dict)
    settings_of: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    addresses: Sequence[str] = ()
    port: int = 0

    @property
    def ids(self) -> range:
        """Return the ids of the brokers."""
        return range(self.first_id, self.first_id + self.brokers)


@attrs.define(eq=False)
class SuiteBrokers:
    """Running brokers of one make on a ZooKeeper of their own. Each can be stopped and started."""

    make: str
    wanted: Wanted
    directory: Path
    zookeeper: str
    _ports: Mapping[int, tuple[int, int]] = attrs.field(init=False)
    _running: dict[int, Process] = attrs.field(factory=dict)

    @_ports.default
    def _claim_ports(self) -> Mapping[int, tuple[int, int]]:
        ports = claim_ports(0, 2 * self.wanted.brokers)
        own_ports = ports[self.wanted.brokers :]
        if self.wanted.port:
            ports = claim_ports(self.wanted.port, self.wanted.brokers)
        pairs = zip(ports, own_ports, strict=False)
        return dict(zip(self.wanted.ids, pairs, strict=False))

    @classmethod
    @contextlib.contextmanager
    def running(cls, make: str, wanted: Wanted, directory: Path) -> Iterator[Self]:
        """Give brokers that serve, until the end of the block."""
        server = EmbeddedZooKeeper(directory / "zookeeper")
        asyncio.run(server.start())
        brokers = cls(make, wanted, directory, server.connect_string)
        try:
            for broker_id in wanted.ids:
                brokers.start(broker_id)
            brokers.wait()
            yield brokers
        finally:
            # In good order, the last ones would wait for others to lead.
            for process in brokers._running.values():
                process.stop(at_once=True)
            asyncio.run(server.stop())

    @property
    def bootstrap(self) -> str:
        """Where clients find them: behind the proxies, if they have any."""
        listeners = [f"{HOST}:{port}" for port in self.ports.values()]
        return ",".join(self.wanted.addresses or listeners)

    @property
    def ports(self) -> Mapping[int, int]:
        """Return where brokers listen to clients, by their ids."""
        return {broker_id: port for broker_id, (port, _) in self._ports.items()}

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run."""
        replicas = str(min(_REPLICAS, self.wanted.brokers))
        properties = {
            "broker.id": str(broker_id),
            "log.dirs": str(self.directory / f"log-{broker_id}"),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": "20000",  # a busy machine is nothing to complain of
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            **self._listeners(broker_id),
            **self.wanted.settings,
            **self.wanted.settings_of.get(broker_id, {}),
        }
        file = self.directory / f"{broker_id}.properties"
        file.write_text(format_properties(properties))
        command = command_of(self.make, file)
        self._running[broker_id] = spawn(f"broker-{broker_id}", command, self.directory)

    def _listeners(self, broker_id: int) -> dict[str, str]:
        """Return a listener for clients, and one for brokers where the former has a proxy."""
        port, own_port = self._ports[broker_id]
        if not self.wanted.addresses:
            return {"listeners": f"PLAINTEXT://{HOST}:{port}"}
        address = self.wanted.addresses[broker_id - self.wanted.first_id]
        for_brokers = f"{_BROKERS}://{HOST}:{own_port}"
        return {
            "listeners": f"{_CLIENTS}://{HOST}:{port},{for_brokers}",
            "advertised.listeners": f"{_CLIENTS}://{address},{for_brokers}",
            "listener.security.protocol.map": f"{_CLIENTS}:PLAINTEXT,{_BROKERS}:PLAINTEXT",
            "inter.broker.listener.name": _BROKERS,
        }

    def stop(self, broker_id: int) -> None:
        """Stop a broker, and return when its process is gone."""
        self._running.pop(broker_id).stop()

    def wait(self) -> None:
        """Return when all that run serve."""
        for broker_id in self._running:
            block_until(partial(self._serves, broker_id), f"broker {broker_id} serves", START_S)

    def _serves(self, broker_id: int) -> bool:
        self._running[broker_id].check_alive()
        with contextlib.suppress(OSError, LoadError):
            return is_serving((HOST, self.ports[broker_id]))
        return False
