"""The parts of a broker from which its figures are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from broker.authentication.sasl_session import LoginCounts
from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.coordinators.marker_sender import MarkerSender
from broker.metrics.counts import Buckets, Counts
from broker.network.listener import Listener
from broker.network.purgatory import Purgatory
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import ReplicaManager
from compaction.cleaner import Cleaner
from groups.coordinator.coordinator import GroupCoordinator
from groups.transactions.coordinator import TransactionCoordinator
from protocol.frozen import frozen
from zk.api import SessionState


@attrs.define(eq=False)
class LoopLoad:
    """The load of the event loop: the delays of a timer, and the share of time without work."""

    delays: Buckets = attrs.field(factory=Buckets)
    idle_share: float = 1.0


@attrs.define(eq=False)
class SessionChanges:
    """Counts how often the ZooKeeper session is connected, suspended and expired."""

    numbers: dict[SessionState, int] = attrs.field(factory=lambda: dict.fromkeys(SessionState, 0))

    def count(self, state: SessionState) -> None:
        """Count a change to this state."""
        self.numbers[state] += 1


@frozen
class Sources:
    """The parts; a figure is read from its owner when it is asked for.

    `logins` has the counts of each SASL listener.
    """

    counts: Counts
    load: LoopLoad
    session: SessionChanges
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    purgatory: Purgatory
    listener: Listener
    controller: Controller
    coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerSender
    cleaner: Cleaner
    cache: MetadataCache
    logins: Mapping[str, LoginCounts]
    now_ms: Callable[[], int]
