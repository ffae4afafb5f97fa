"""What one client knows of its cluster, whichever of its parts has learned it.

A member asks its coordinator on the application's loop, and sends heartbeats on a loop of their own
in a thread. Each has a `Cluster` with connections, which belong to their loop. What they know is
here once: addresses of brokers, coordinators, and the brokers that keep silent. These are values,
so either loop may read them at any time; who waits hears of another coordinator on its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping

import attrs

from clients.cluster_view import BrokerEndpoint
from clients.complaints import Complaints

Key = tuple[int, str]
"""Type and key, as FindCoordinator has them."""
Address = tuple[str, int]
Listener = Callable[[Mapping[Key, BrokerEndpoint]], None]

MOST_FORMER = 100


@attrs.define(eq=False)
class KnownCluster:
    """What the `Cluster`s of one client know together."""

    brokers: Mapping[int, BrokerEndpoint] = attrs.field(factory=dict)
    """Live brokers by id, as of the last metadata that any part has read."""
    cluster_id: str | None = None
    former: Mapping[Address, BrokerEndpoint] = attrs.field(factory=dict)
    """Brokers of earlier metadata; the last of them were there most recently."""
    complaints: Complaints = attrs.field(factory=Complaints)
    """What fails in any part: the log has one line of it, and one of its end."""
    _coordinators: dict[Key, BrokerEndpoint] = attrs.field(factory=dict)
    _silent: set[Address] = attrs.field(factory=set)
    _listeners: dict[Listener, asyncio.AbstractEventLoop] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    # ---- brokers

    def learn_brokers(self, brokers: Mapping[int, BrokerEndpoint], cluster_id: str | None) -> None:
        """Note the brokers of new metadata, which may have been read while most were down."""
        with self._lock:
            if brokers != self.brokers:
                now = {endpoint.address for endpoint in brokers.values()}
                before = [*self.former.values(), *self.brokers.values()]
                gone = [endpoint for endpoint in before if endpoint.address not in now]
                self.former = {endpoint.address: endpoint for endpoint in gone[-MOST_FORMER:]}
            self.brokers, self.cluster_id = brokers, cluster_id

    def note_silence(self, endpoint: BrokerEndpoint) -> None:
        """Note that a broker did not respond in time, or cannot be reached."""
        with self._lock:
            self._silent.add(endpoint.address)

    def note_response(self, address: Address) -> None:
        """Note that the broker at an address responds."""
        # Mostly there is nothing to note, and no lock is needed for that.
        if address in self._silent:
            with self._lock:
                self._silent.discard(address)

    def is_silent(self, address: Address) -> bool:
        """Return whether the broker at an address did not respond when it was asked last."""
        return address in self._silent

    # ---- coordinators

    def coordinator(self, key: Key) -> BrokerEndpoint | None:
        """Return a coordinator; None if it is not known."""
        return self._coordinators.get(key)

    def learn_coordinators(self, coordinators: Mapping[Key, BrokerEndpoint]) -> None:
        """Note coordinators that brokers have named. Who waits for another one hears of it."""
        with self._lock:
            new = {
                key: endpoint
                for key, endpoint in coordinators.items()
                if self._coordinators.get(key) != endpoint
            }
            self._coordinators |= new
            listeners = list(self._listeners.items())

        for listener, loop in listeners if new else ():
            try:
                loop.call_soon_threadsafe(listener, new)
            except RuntimeError:
                # Its loop is closed, and nobody waits there.
                self.stop_listening(listener)

    def forget_coordinator(self, key: Key, endpoint: BrokerEndpoint | None = None) -> None:
        """Forget a coordinator; with `endpoint` only if it is that one still."""
        with self._lock:
            if endpoint is None or self._coordinators.get(key) == endpoint:
                self._coordinators.pop(key, None)

    def listen(self, listener: Listener) -> None:
        """Call `listener` on the running loop with coordinators that are learned from now on."""
        with self._lock:
            self._listeners[listener] = asyncio.get_running_loop()

    def stop_listening(self, listener: Listener) -> None:
        """Call `listener` no more."""
        with self._lock:
            self._listeners.pop(listener, None)
