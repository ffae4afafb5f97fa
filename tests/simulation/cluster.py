"""The simulated cluster whose promises are checked: three brokers, one topic, the invariants."""

from __future__ import annotations

import functools
from functools import partial
from random import Random

from broker.replication.partition import Partition
from broker.server import Broker
from clients.config import ClusterConfig
from kgroup.testing.simulation import cluster as simulated
from kgroup.testing.simulation.cluster import CLIENT
from kgroup.testing.simulation.node import PORT, Node
from kgroup.testing.waiting import until
from protocol.settings import load
from tests.simulation.invariants import Invariants

TOPIC = "t"
PARTITIONS = 6
until_answered = functools.partial(until, pause_s=0.1, retry_on=(Exception,))
"""Wait for an answer that a fault may keep from coming, or make an error."""
SEED_NAME = "name-seed"
"""A name of one of the brokers, which is taken back while clients run."""


class Cluster(simulated.Cluster):
    """The cluster of a story, and its invariants."""

    partitions = PARTITIONS

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.invariants = Invariants(self)
        self.broker_made = self._check_replicas_of

    def draw_bootstrap(self, rng: Random) -> str:
        """Return what a client is told of the brokers: all of them, one, or a name that will go.

        With one address, or with an outdated one, a client must live by what it has learned since.
        """
        known = [self.bootstrap, rng.choice(self.nodes).address]
        if SEED_NAME in self.network.names:
            known.append(f"{SEED_NAME}:{PORT}")
        return rng.choice(known)

    def client_config(self, bootstrap: str) -> ClusterConfig:
        """Return what clients that take no names are given."""
        return load(ClusterConfig, {"bootstrap.servers": bootstrap, **CLIENT})[0]

    def _check_replicas_of(self, node: Node, broker: Broker) -> None:
        node.process.after_turn = partial(self._check_next, node.host, broker, [])

    def _check_next(self, host: str, broker: Broker, unchecked: list[Partition]) -> None:
        """Check one replica of the broker, after each turn the next: all would take too long."""
        if not unchecked:
            unchecked += broker.partitions.values()
        if unchecked:
            self.invariants.check_replica(host, unchecked.pop())
