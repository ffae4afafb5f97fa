"""Check tokens of OAUTHBEARER by public keys, and keep these up to date.

Keys are read again every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon when a token names
a key that is not among them: then whoever signs may have a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

import attrs

from broker.authentication.key_document import read_document
from broker.process.process import Process
from broker.settings.sasl_config import TokenConfig
from protocol.sasl.oauthbearer import (
    AcceptedToken,
    check_claims,
    parse_unsecured,
)
from protocol.sasl.signed_tokens import (
    BadKeys,
    SecurityExtraMissing,
    TokenKeys,
    UnknownKey,
    read_keys,
)
from protocol.settings import SettingError

logger = logging.getLogger(__name__)

HASTE_PAUSE_MS = 60_000
"""Least time between two readings that tokens have asked for: anybody can name unknown keys."""


@attrs.define(eq=False)
class TokenValidator:
    """Checks tokens by the keys that were read last; without keys, unsecured tokens.

    `now_ms` is the wall clock, for the times in tokens.
    """

    config: TokenConfig
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    keys: TokenKeys | None = None
    _is_wanted: asyncio.Event = attrs.field(factory=asyncio.Event)
    _hastened_ms: int | None = None

    def validate(self, token: str) -> AcceptedToken:
        """Return the user of a token. Raises InvalidToken."""
        try:
            claims = parse_unsecured(token) if self.keys is None else self.keys.verify(token)
        except UnknownKey:
            self._hasten()
            raise
        return check_claims(claims, self.config.rules, self.now_ms())

    def _hasten(self) -> None:
        """Have the keys read soon. The token is refused all the same; its client tries again."""
        now_ms = self.monotonic_ms()
        if self._hastened_ms is None or now_ms >= self._hastened_ms + HASTE_PAUSE_MS:
            self._hastened_ms = now_ms
            self._is_wanted.set()

    # ---- keys

    async def read(self) -> None:
        """Read the keys. Raises SettingError."""
        location = self.config.keys_location
        if location is None:
            return
        # A thread of the loop's own: those of the disk must not wait for a page.
        read = asyncio.get_running_loop().run_in_executor
        try:
            document = await read(None, partial(read_document, location))
            self.keys = read_keys(document)
        except (OSError, BadKeys, SecurityExtraMissing) as error:
            reason = f"keys of OAUTHBEARER cannot be read: {error}"
            raise SettingError(location, reason) from error

    async def follow(self) -> None:
        """Read the keys again, for ever. Those that cannot be read leave the old ones in force."""
        pause_ms = self.config.keys_refresh_ms
        failures = 0
        while True:
            await self._wait(pause_ms)
            try:
                await self.read()
            except SettingError as error:
                pause_ms = self.config.retry_pause_ms(failures)
                failures += 1
                if failures == 1:
                    logger.error("the old keys stay, and are read again soon: %s", error)
                continue

            if failures:
                logger.info("keys of OAUTHBEARER are read again")
            pause_ms = self.config.keys_refresh_ms
            failures = 0

    async def _wait(self, pause_ms: int) -> None:
        """Wait for a time, or until a token has named an unknown key."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._is_wanted.wait()
        self._is_wanted.clear()


async def prepare_tokens(config: TokenConfig, process: Process) -> TokenValidator:
    """Read the keys, and keep them up to date. Raises SettingError for keys that cannot be read."""
    validator = TokenValidator(config, process.now_ms, process.monotonic_ms)
    await validator.read()
    if config.keys_location is not None:
        process.spawn(validator.follow())
    return validator
