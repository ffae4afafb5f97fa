"""Open, shut and advertise listeners as their settings change (KIP-226)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import attrs

from broker.cluster.registration import Registration
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
    """The listeners of this broker: which are open, and what is registered of them."""

    listener: Listener
    tls: TlsContexts
    registration: Registration
    advertise: Advertise
    _open: dict[str, Endpoint]
    """Those that are open, by name, as the settings have them."""
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def apply(self, config: BrokerConfig) -> None:
        """Open and shut listeners, and register the addresses. What cannot be opened is logged."""
        async with self._turn:
            wanted = {endpoint.listener: endpoint for endpoint in config.endpoints}
            for name in self._open.keys() - wanted.keys():
                del self._open[name]
                self.listener.shut(name)
                self.tls.drop(name)
                logger.info("listener %s is shut", name)

            for endpoint in wanted.values():
                if self._open.get(endpoint.listener) != endpoint:
                    await self._open_one(config, endpoint)

            # Who is sent to a listener must find it.
            ports = self.listener.ports
            endpoints = self.advertise(config, ports)
            await self.registration.advertise(tuple(e for e in endpoints if e.listener in ports))

    async def _open_one(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        name = endpoint.listener
        try:
            if uses_tls(endpoint.security_protocol):
                await self.tls.add(config, name)
            port = self.listener.open(endpoint)
        except (OSError, SettingError) as error:
            logger.error("listener %s is not opened: %s", endpoint, error)
            return
        self._open[name] = endpoint
        logger.info("listener %s is open on port %s", endpoint, port)
