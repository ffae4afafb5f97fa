"""The resources that have settings, as requests name them: topics, brokers, and "" for all brokers
(KIP-133)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config_alteration import (
    Change,
    Schema,
    apply_changes,
    broker_schema,
    invalid_value,
    topic_schema,
)
from broker.settings.dynamic_config import LISTENERS, apply_dynamic
from broker.settings.entity_configs import BROKERS, TOPICS, Settings, alter, unknown_topic
from broker.settings.tls_contexts import TlsContexts
from broker.settings.topic_configs import TopicConfigs
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.settings import SettingError
from zk.api import ZkError, ZkSession
from zk.znodes import DEFAULT_ENTITY

# The types of Kafka's ConfigResource.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8

TOPICS_IN_FLIGHT = 32
"""Topics whose settings are read and written at once."""

Verdict = tuple[ErrorCode, str | None]


@frozen
class Alteration:
    """The changes of one resource in a request."""

    resource_type: int
    resource_name: str
    changes: Sequence[Change]


@frozen
class ConfigResources:
    """Changes settings in ZooKeeper: of any topic, of this broker and of all brokers.

    `tls` judges stores of TLS before their settings are written.
    """

    zk: ZkSession
    topics: TopicConfigs
    brokers: BrokerConfigs
    tls: TlsContexts

    async def alter(
        self,
        alterations: Sequence[Alteration],
        verdicts: list[Verdict],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> None:
        """Apply the alterations independently; add a verdict on each as soon as there is one.

        Its changes are effective on this broker then.
        """
        # A resource that comes twice is refused wherever it stands.
        counts = Counter(map(_resource, alterations))
        judge = partial(self._judge, counts, replaces=replaces, validate_only=validate_only)
        for some in _in_flight_together(alterations):
            verdicts += await asyncio.gather(*map(judge, some))

    async def _judge(
        self,
        counts: Mapping[tuple[int, str], int],
        alteration: Alteration,
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Verdict:
        """Apply an alteration, and return the verdict on it."""
        try:
            if counts[_resource(alteration)] > 1:
                reason = "Each resource must appear at most once."
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            _check_type(alteration.resource_type, replaces)
            await self._alter(alteration, replaces, validate_only)
            return ErrorCode.NONE, None
        except ApiError as error:
            return error.code, error.detail or error.code.meaning
        except ZkError as error:
            return ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error!r}"

    async def _alter(self, alteration: Alteration, replaces: bool, validate_only: bool) -> None:
        # The change is decided on what is stored when it is written.
        kind, entity, schema = self._entity(alteration.resource_type, alteration.resource_name)
        change: Callable[[Settings], Settings]
        change = partial(apply_changes, schema, alteration.changes, replaces=replaces)
        if kind == BROKERS and entity != DEFAULT_ENTITY:
            change = partial(self._change_own, schema, change)
            opens = any(entry.name in LISTENERS for entry in alteration.changes)
            if self.tls.listeners or opens:
                await self._check_stores(schema, change)
        await alter(self.zk, kind, entity, change, validate_only=validate_only)
        if validate_only:
            return

        # Take the change at once; other brokers follow the notification.
        if kind == TOPICS:
            await self.topics.read(entity)
        else:
            await self.brokers.read()
            await self.tls.apply(self.brokers.now)

    def _change_own(
        self, schema: Schema, change: Callable[[Settings], Settings], stored: Settings
    ) -> Settings:
        """Change the settings of this broker, among which passwords are encrypted."""
        settings = change(self.brokers.decrypt(stored))
        try:
            return self.brokers.encrypt(settings)
        except SettingError as error:
            raise invalid_value(schema, str(error)) from error

    async def _check_stores(self, schema: Schema, change: Callable[[Settings], Settings]) -> None:
        """Raise ApiError if the stores of a listener would not load. This reads files."""
        after: list[Settings] = []

        def capture(stored: Settings) -> Settings:
            after[:] = [change(stored)]
            return after[0]

        own = str(self.brokers.static.broker_id)
        await alter(self.zk, BROKERS, own, capture, validate_only=True)
        settings = self.brokers.decrypt(after[0])
        try:
            config = apply_dynamic(self.brokers.static, {**self.brokers.cluster, **settings})
            await self.tls.check(config)
        except SettingError as error:
            raise invalid_value(schema, str(error)) from error

    def _entity(self, resource_type: int, name: str) -> tuple[str, str, Schema]:
        """Return the kind and name under which the settings are stored, and their schema."""
        if resource_type == TOPIC:
            if not name:
                raise unknown_topic(name)
            return TOPICS, name, topic_schema(self.topics.defaults, name)

        # A broker knows its own settings alone, so clients send to the broker itself. Those of
        # all brokers ("") may be changed anywhere.
        own = self.brokers.static.broker_id
        if name and parse_broker_id(name) != own:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own}, but received {name}",
            )
        entity = str(own) if name else DEFAULT_ENTITY
        refuse_contradiction = partial(self.brokers.refuse_contradiction, entity)
        return BROKERS, entity, broker_schema(self.brokers.now, name, refuse_contradiction)


def _resource(alteration: Alteration) -> tuple[int, str]:
    return alteration.resource_type, alteration.resource_name


def _in_flight_together(alterations: Sequence[Alteration]) -> Iterator[Sequence[Alteration]]:
    """Divide the alterations: some topics each, and each broker by itself.

    A broker's settings and those of all brokers are judged by each other.
    """
    for is_topic, run in groupby(alterations, lambda entry: entry.resource_type == TOPIC):
        entries = list(run)
        size = TOPICS_IN_FLIGHT if is_topic else 1
        for start in range(0, len(entries), size):
            yield entries[start : start + size]


def parse_broker_id(name: str) -> int:
    """Return the broker id in a resource's name. Raises ApiError(INVALID_REQUEST)."""
    try:
        return int(name)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None


def _check_type(resource_type: int, replaces: bool) -> None:
    """Refuse types of resources without settings that are served here. Raises ApiError."""
    if resource_type in (TOPIC, BROKER):
        return

    reason = "Unexpected resource type UNKNOWN"
    if resource_type == BROKER_LOGGER and replaces:
        reason = "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER"
    elif resource_type == BROKER_LOGGER:
        reason = (
            "AlterConfigs is only supported for topics and brokers, but resource type is "
            "BROKER_LOGGER"
        )
    raise ApiError(ErrorCode.INVALID_REQUEST, reason)
