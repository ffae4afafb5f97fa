"""DescribeConfigs: the settings of topics and of this broker, and where each comes from.

Of several values that a setting was given, the one in force is the first of: the topic's own, the
broker's own and that of all brokers (both of ZooKeeper, KIP-226), its file's, the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_names import check_legal
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from broker.settings.accepted_settings import ACCEPTED
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config_resources import BROKER, BROKER_LOGGER, TOPIC, parse_broker_id
from broker.settings.dynamic_config import DYNAMIC
from broker.settings.topic_configs import TopicConfigs
from core_log.config import BROKER_NAME, LogConfig
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)
from protocol.settings import declared_settings

FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_STATIC_BROKER, FROM_DEFAULT = 1, 2, 3, 4, 5

SENSITIVE = re.compile(
    r"(password|encoder\.(old\.)?secret|(secret|master|keystore)\.key"
    r"|certificate\.chain|truststore\.certificates|jaas\.config)$"
)
"""Names of settings whose values are nobody's business."""


def handle(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> Outcome:
    """Answer once the settings of the topics asked for have been read."""
    asked = {
        r.resource_name
        for r in request.resources
        if r.resource_type == TOPIC and cache.has_topic(r.resource_name)
    }
    return topics.when_read(
        asked,
        lambda: _describe(cache, topics, brokers, request),
        brokers.static.request_timeout_ms,
    )


def _describe(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        code, message, configs = ErrorCode.NONE, None, []
        try:
            described = _resource(cache, topics, brokers, resource)
            wanted = resource.configuration_keys
            configs = [
                each.on_wire(request.include_synonyms)
                for each in described
                if wanted is None or each.name in wanted
            ]
        except ApiError as error:
            code, message = error.code, error.detail
        results.append(
            DescribeConfigsResponseResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(results=results)


Value = tuple[str, str | None, int]  # the name it was given under, the value, the source


@attrs.frozen
class _Described:
    """A setting and all its values, the one in force first."""

    name: str
    values: list[Value]
    read_only: bool = False

    def on_wire(self, synonyms: bool) -> DescribeConfigsResponseConfig:
        """As it is told; a sensitive one without its values."""
        is_sensitive = SENSITIVE.search(self.name) is not None
        values = [(name, None if is_sensitive else v, source) for name, v, source in self.values]
        _, value, source = values[0]
        return DescribeConfigsResponseConfig(
            name=self.name,
            value=value,
            read_only=self.read_only,
            is_default=source == FROM_DEFAULT,
            config_source=source,
            is_sensitive=is_sensitive,
            synonyms=[
                DescribeConfigsResponseSynonym(name=n, value=v, source=s) for n, v, s in values
            ]
            if synonyms
            else [],
        )


def _resource(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    resource: DescribeConfigsRequestResource,
) -> list[_Described]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        if not cache.has_topic(name):
            check_legal(name)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not topics.is_known(name):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper does not tell those of {name}")
        return _topic(brokers, topics.overrides(name))
    if resource.resource_type == BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unsupported resource type: BROKER_LOGGER")
    if resource.resource_type != BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.meaning)
    if not name:
        return [
            _Described(each, [(each, value, FROM_ALL_BROKERS)])
            for each, value in sorted(brokers.cluster.items())
        ]
    own = brokers.static.broker_id
    if parse_broker_id(name) != own:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or empty string, but received {name}",
        )
    return _broker(brokers)


def _topic(brokers: BrokerConfigs, own: Mapping[str, str]) -> list[_Described]:
    static, defaults = brokers.static.log, LogConfig()
    described = []
    for field, setting in sorted(
        declared_settings(LogConfig).items(), key=lambda item: item[1].name
    ):
        broker_name = BROKER_NAME.get(setting.name, setting.name)
        values: list[Value] = []
        if setting.name in own:
            values.append((setting.name, own[setting.name], FROM_TOPIC))
        values += _dynamic(brokers, broker_name)
        if getattr(static, field) != getattr(defaults, field):
            values.append((broker_name, text(getattr(static, field)), FROM_STATIC_BROKER))
        values.append((broker_name, text(getattr(defaults, field)), FROM_DEFAULT))
        described.append(_Described(setting.name, values))
    return described


def _broker(brokers: BrokerConfigs) -> list[_Described]:
    static = brokers.static
    described = [
        _of_broker(brokers, setting.name, part, field)
        for part in (static, static.cleaner, static.offsets, static.groups)
        for field, setting in declared_settings(type(part)).items()
    ]
    described += [
        _of_broker(brokers, BROKER_NAME[setting.name], static.log, field)
        for field, setting in declared_settings(LogConfig).items()
        if setting.name in BROKER_NAME
    ]
    described += [
        _Described(name, [(name, value, FROM_STATIC_BROKER)], read_only=True)
        for name, value in static.given.items()
        if name in ACCEPTED or name.startswith("listener.name.")
    ]
    return sorted(described, key=lambda each: each.name)


def _of_broker(
    brokers: BrokerConfigs, name: str, part: attrs.AttrsInstance, field: str
) -> _Described:
    """A setting of the broker, which was started with what `field` of `part` has."""
    value, default = getattr(part, field), attrs.fields_dict(type(part))[field].default
    values = _dynamic(brokers, name)
    if name in brokers.static.given or value != default:
        values.append((name, text(value), FROM_STATIC_BROKER))
    if default is not attrs.NOTHING:
        values.append((name, text(default), FROM_DEFAULT))
    return _Described(name, values, read_only=name not in DYNAMIC)


def _dynamic(brokers: BrokerConfigs, name: str) -> list[Value]:
    layers = ((brokers.own, FROM_BROKER), (brokers.cluster, FROM_ALL_BROKERS))
    return [(name, layer[name], source) for layer, source in layers if name in layer]


def text(value: object) -> str | None:
    """A setting's value as Kafka writes it; null for one that has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
