"""The contexts of TLS of a broker: of its listeners, and of its connections to other brokers.

Stores are read when the broker starts, when their settings change, and when their files do. New
contexts are for new connections; those that are open stay as they are.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from broker.network.listener_tls import ListenerTls
from broker.settings.config import BrokerConfig
from broker.settings.tls_changes import LoadedTls, refuse_change, refuse_strangers
from broker.settings.tls_settings import under_its_name, uses_tls
from protocol.frozen import frozen
from protocol.security_protocol import SecurityProtocol
from protocol.settings import SettingError
from protocol.tls.principal_rules import parse_rules
from protocol.tls.stores import load_stores, store_files

logger = logging.getLogger(__name__)

Stamps = tuple[tuple[str, int, int], ...]
"""Path, time of change and size of each file of a listener's stores."""


@frozen
class _Made:
    """A context made from a listener's settings, with the files as they were."""

    loaded: LoadedTls
    stamps: Stamps
    server: ssl.SSLContext
    client: ssl.SSLContext | None


@attrs.define(eq=False)
class TlsContexts:
    """The contexts, by listener. `in_thread` runs what reads files."""

    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    listeners: dict[str, ListenerTls] = attrs.field(factory=dict)
    _made: dict[str, _Made] = attrs.field(factory=dict)
    _config: BrokerConfig | None = None
    _refused: dict[str, object] = attrs.field(factory=dict)
    """What was refused last for each listener, which is logged once."""

    async def start(self, config: BrokerConfig) -> None:
        """Make the contexts of a broker that starts. Raises SettingError."""
        self._config = config
        if not any(uses_tls(endpoint.security_protocol) for endpoint in config.endpoints):
            return
        made = await self.in_thread(partial(self._make_all, config))
        for listener, of_listener in made.items():
            self._take(config, listener, of_listener)

    async def add(self, config: BrokerConfig, listener: str) -> None:
        """Make the contexts of a listener that is opened. Raises SettingError."""
        if listener not in self._made:
            made = await self.in_thread(partial(self._make, config, listener))
            self._config = config
            self._take(config, listener, made)

    def drop(self, listener: str) -> None:
        """Forget a listener that is shut."""
        self._made.pop(listener, None)
        self.listeners.pop(listener, None)

    def _take(self, config: BrokerConfig, listener: str, made: _Made) -> None:
        self._made[listener] = made
        tls = made.loaded.config
        self.listeners[listener] = ListenerTls(
            made.server,
            parse_rules(tls.ssl_principal_mapping_rules),
            config.protocol_of(listener) == SecurityProtocol.SSL.name,
        )

    def client_context(self, listener: str) -> ssl.SSLContext | None:
        """Return the context for connecting to a listener of brokers; None: it has no TLS."""
        made = self._made.get(listener)
        return None if made is None else made.client

    async def check(self, config: BrokerConfig) -> None:
        """Raise SettingError for a config whose stores cannot take effect here."""
        await self.in_thread(partial(self._make_all, config))

    async def apply(self, config: BrokerConfig) -> None:
        """Take new settings into effect, and files that changed. What is refused is logged."""
        self._config = config
        await self.renew()

    async def renew(self) -> None:
        """Make the contexts again whose settings or files changed."""
        for listener in list(self._made):
            await self._renew(listener)

    async def _renew(self, listener: str) -> None:
        config = self._config
        assert config is not None
        # It may be shut, and have no settings any more.
        if listener not in {endpoint.listener for endpoint in config.endpoints}:
            return
        try:
            made = await self.in_thread(partial(self._make_if_changed, config, listener))
        except SettingError as error:
            # The files may be half written: they are looked at again.
            if self._refused.get(listener) != str(error):
                self._refused[listener] = str(error)
                logger.error("listener %s keeps its earlier stores: %s", listener, error)
            return

        # Other settings came meanwhile: whoever waits for these waits until those are in effect.
        if config is not self._config:
            await self._renew(listener)
            return

        self._refused.pop(listener, None)
        if made is not None and listener in self._made:
            self._made[listener] = made
            self.listeners[listener].context = made.server
            logger.info("listener %s: new connections have the changed stores", listener)

    # ---- in threads

    def _make_all(self, config: BrokerConfig) -> Mapping[str, _Made]:
        return {
            endpoint.listener: self._make(config, endpoint.listener)
            for endpoint in config.endpoints
            if uses_tls(endpoint.security_protocol)
        }

    def _make_if_changed(self, config: BrokerConfig, listener: str) -> _Made | None:
        """Return the new contexts of a listener; None if nothing changed. Raises SettingError."""
        before = self._made[listener]
        tls = config.tls_of(listener)
        if tls == before.loaded.config and _stamp(tls) == before.stamps:
            return None
        return self._make(config, listener)

    def _make(self, config: BrokerConfig, listener: str) -> _Made:
        """Read the stores of a listener, judge them, and make contexts. Raises SettingError."""
        tls = config.tls_of(listener)
        is_of_brokers = listener in (config.inter_broker_listener, config.controller_listener)
        try:
            # The stamps first: a change while the stores are read is a change.
            stamps = _stamp(tls)
            loaded = LoadedTls(tls, load_stores(tls))
            server = loaded.server_context()
            client = loaded.client_context() if is_of_brokers else None
            self._judge(listener, loaded, is_of_brokers)
        except SettingError as error:
            raise under_its_name(error, config.given, listener) from error
        return _Made(loaded, stamps, server, client)

    def _judge(self, listener: str, loaded: LoadedTls, is_of_brokers: bool) -> None:
        """Raise SettingError for stores that cannot stand beside others."""
        before = self._made.get(listener)
        if before is not None:
            refuse_change(before.loaded, loaded)
        if is_of_brokers:
            # Other brokers have the old stores for a while, or the new ones already.
            refuse_strangers(loaded, loaded)
            if before is not None:
                refuse_strangers(loaded, before.loaded)
                refuse_strangers(before.loaded, loaded)


def _stamp(config: Any) -> Stamps:
    stamps = []
    for file in store_files(config):
        try:
            status = Path(file).stat()
        except OSError:
            # Reading it fails with a reason.
            continue
        stamps.append((file, status.st_mtime_ns, status.st_size))
    return tuple(stamps)
