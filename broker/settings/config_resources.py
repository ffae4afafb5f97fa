"""What has settings, as requests name it: topics, brokers, and "" for all brokers (KIP-133)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import attrs

from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config_alteration import Change, Schema, altered, broker_schema, topic_schema
from broker.settings.entity_configs import BROKERS, TOPICS, alter, unknown_topic
from broker.settings.topic_configs import TopicConfigs
from protocol.errors import ApiError, ErrorCode
from zk.api import ZkError, ZkSession
from zk.znodes import DEFAULT_ENTITY

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8

Verdict = tuple[ErrorCode, str | None]


@attrs.frozen
class Alteration:
    """The changes that a request has for one resource."""

    resource_type: int
    resource_name: str
    changes: Sequence[Change]


@attrs.frozen
class ConfigResources:
    """Changes them in ZooKeeper, for any broker's topics and this broker's settings."""

    zk: ZkSession
    topics: TopicConfigs
    brokers: BrokerConfigs

    async def alter(
        self, alterations: Sequence[Alteration], *, replaces: bool, validate_only: bool
    ) -> list[Verdict]:
        """How each came out, for itself. What was changed is in force on this broker."""
        times = Counter((each.resource_type, each.resource_name) for each in alterations)
        verdicts: list[Verdict] = []
        for each in alterations:
            try:
                if times[each.resource_type, each.resource_name] > 1:
                    why = "Each resource must appear at most once."
                    raise ApiError(ErrorCode.INVALID_REQUEST, why)
                _check_type(each.resource_type, replaces)
                await self._alter(each, replaces, validate_only)
                verdicts.append((ErrorCode.NONE, None))
            except ApiError as error:
                verdicts.append((error.code, error.detail or error.code.meaning))
            except ZkError as error:
                verdicts.append((ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error!r}"))
        return verdicts

    async def _alter(self, each: Alteration, replaces: bool, validate_only: bool) -> None:
        kind, entity, schema = self._entity(each.resource_type, each.resource_name)
        change = partial(altered, schema, each.changes, replaces=replaces)
        await alter(self.zk, kind, entity, change, validate_only=validate_only)
        if validate_only:
            return
        await (self.topics.read(entity) if kind == TOPICS else self.brokers.read())

    def _entity(self, resource_type: int, name: str) -> tuple[str, str, Schema]:
        """Where its settings are kept, and what they may be."""
        if resource_type == TOPIC:
            if not name:
                raise unknown_topic(name)
            return TOPICS, name, topic_schema(self.topics.defaults, name)
        own = self.brokers.static.broker_id
        if name and broker_id(name) != own:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own}, but received {name}",
            )
        entity = str(own) if name else DEFAULT_ENTITY
        return BROKERS, entity, broker_schema(self.brokers.now, name)


def broker_id(name: str) -> int:
    """The broker that a resource is named for. Raises ApiError(INVALID_REQUEST)."""
    try:
        return int(name)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None


def _check_type(resource_type: int, replaces: bool) -> None:
    """Refuse what has no settings, or none that are served here. Raises ApiError."""
    if resource_type in (TOPIC, BROKER):
        return
    why = "Unexpected resource type UNKNOWN"
    if resource_type == BROKER_LOGGER:
        why = (
            "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER"
            if replaces
            else "AlterConfigs is only supported for topics and brokers, but resource type is "
            "BROKER_LOGGER"
        )
    raise ApiError(ErrorCode.INVALID_REQUEST, why)
