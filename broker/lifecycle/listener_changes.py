"""Open, shut and advertise listeners as their settings change (KIP-226)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import attrs

from broker.cluster.registration import AlreadyRegistered, Registration
from broker.network.listener import Listener
from broker.settings.config import BrokerConfig
from broker.settings.tls_contexts import TlsContexts
from broker.settings.tls_settings import uses_tls
from protocol.settings import SettingError
from zk.znodes import Endpoint

logger = logging.getLogger(__name__)

Advertise = Callable[[BrokerConfig, Mapping[str, int]], tuple[Endpoint, ...]]
"""Takes a config and the bound ports by listener; returns the addresses for others."""


@attrs.define(eq=False)
class ListenerChanges:
    """The listeners of this broker: which are open, and what is registered of them.

    `in_thread` runs what binds ports: a name is looked up for as long as its servers like.
    """

    listener: Listener
    tls: TlsContexts
    registration: Registration
    advertise: Advertise
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    _open: dict[str, Endpoint]
    """Those that are open, by name, as the settings have them."""
    _wanted: Mapping[str, Endpoint] = attrs.field(factory=dict)
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def apply(self, config: BrokerConfig) -> None:
        """Open and shut listeners, and register the addresses. What cannot be is logged."""
        async with self._turn:
            wanted = {endpoint.listener: endpoint for endpoint in config.endpoints}
            # Other settings change more often, and a port that was taken may be so for long
            # (fault strangers-134, was: True).
            is_new = wanted != self._wanted
            if is_new:
                self._wanted = wanted
                await self._open_and_shut(config, wanted)
            await self._register(config, wanted)

    async def begin(self, config: BrokerConfig) -> None:
        """Do the same at a start. Raises OSError if brokers have no listener to come by."""
        await self.apply(config)
        name = config.inter_broker_listener
        if name not in self._open:
            raise OSError(f"listener {name}, by which brokers come, could not be opened")

    async def _open_and_shut(self, config: BrokerConfig, wanted: Mapping[str, Endpoint]) -> None:
        for name in self._open.keys() - wanted.keys():
            del self._open[name]
            self.listener.shut(name)
            self.tls.drop(name)
            logger.info("listener %s is shut", name)

        # First all give their ports up: one may take another's, or its own for more addresses.
        ports = self.listener.ports
        moved = {
            name: attrs.evolve(endpoint, port=ports[name])
            for name, endpoint in self._open.items()
            if wanted[name] != endpoint
        }
        for name, endpoint in moved.items():
            del self._open[name]
            self.listener.release(name)
            if endpoint.security_protocol != wanted[name].security_protocol:
                self.tls.drop(name)
        for name in wanted.keys() - self._open.keys():
            await self._open_one(config, wanted[name])

        # One that could not move goes on where it was.
        for name in moved.keys() - self._open.keys():
            await self._open_one(config, moved[name])

    async def _open_one(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        name = endpoint.listener
        try:
            if uses_tls(endpoint.security_protocol):
                await self.tls.add(config, name)
            # Its host may be a name (fault strangers-134).
            bound = await self.in_thread(
                partial(self.listener.open_socket, endpoint.host, endpoint.port)
            )
            port = self.listener.listen(name, bound)
        except (OSError, SettingError) as error:
            logger.error("listener %s is not opened: %s", endpoint, error)
            return
        self._open[name] = endpoint
        logger.info("listener %s is open on port %s", endpoint, port)

    async def _register(self, config: BrokerConfig, wanted: Mapping[str, Endpoint]) -> None:
        """Register the addresses of listeners that are open where the settings have them."""
        open_as_wanted = {name for name, at in wanted.items() if self._open.get(name) == at}
        endpoints = self.advertise(config, self.listener.ports)
        advertised = [one for one in endpoints if one.listener in open_as_wanted]
        advertised += self._kept(open_as_wanted)
        try:
            await self.registration.advertise(tuple(advertised))
        except AlreadyRegistered as error:
            logger.error("the addresses stay as they are registered: %s", error)

    def _kept(self, others: Collection[str]) -> list[Endpoint]:
        """Return what is registered of listeners that could not move, and go on where they were."""
        return [
            endpoint
            for endpoint in self.registration.broker.endpoints
            if endpoint.listener in self._open and endpoint.listener not in others
        ]
