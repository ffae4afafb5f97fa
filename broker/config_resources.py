"""What has settings, as requests name it: topics, brokers, and "" for all brokers (KIP-133)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import attrs

from broker.broker_configs import BrokerConfigs
from broker.config_alteration import Change, Schema, altered, broker_schema, topic_schema
from broker.entity_configs import BROKERS, TOPICS, alter
from broker.topic_configs import TopicConfigs
from protocol.errors import ApiError, ErrorCode
from zk.admin_znodes import DEFAULT_ENTITY
from zk.api import ZkError, ZkSession

TOPIC, BROKER = 2, 4

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
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the request names it twice")
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
                raise ApiError(ErrorCode.INVALID_REQUEST, "a topic has a name")
            return TOPICS, name, topic_schema(self.topics.defaults)
        if resource_type == BROKER:
            own = str(self.brokers.static.broker_id)
            if name not in ("", own):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {own}, but received {name}",
                )
            return BROKERS, name or DEFAULT_ENTITY, broker_schema(self.brokers.now)
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "AlterConfigs is only supported for topics and brokers, but resource type is "
            f"{resource_type}",
        )
