"""DescribeConfigs: the settings of topics and of this broker, and where each comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.config import BrokerConfig
from broker.dispatch import RequestContext
from broker.metadata_cache import MetadataCache
from broker.topic_configs import TopicConfigs
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
from protocol.settings import declared

TOPIC, BROKER = 2, 4
FROM_TOPIC, FROM_STATIC_BROKER, FROM_DEFAULT = 1, 4, 5

TopicOverrides = Callable[[str], Mapping[str, str]]


def handle(
    cache: MetadataCache,
    config: BrokerConfig,
    configs: TopicConfigs,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> Any:
    """Answer once the settings of the topics asked for are known."""
    topics = {
        r.resource_name
        for r in request.resources
        if r.resource_type == TOPIC and cache.has_topic(r.resource_name)
    }
    return configs.when_known(
        topics,
        lambda: _describe(cache, config, configs.overrides, request),
        config.request_timeout_ms,
    )


def _describe(
    cache: MetadataCache,
    config: BrokerConfig,
    overrides: TopicOverrides,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        code, message, configs = ErrorCode.NONE, None, []
        try:
            configs = _configs(cache, config, overrides, request, resource)
        except ApiError as error:
            code, message = error.code, str(error)
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


def _configs(
    cache: MetadataCache,
    config: BrokerConfig,
    overrides: TopicOverrides,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequestResource,
) -> list[DescribeConfigsResponseConfig]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        if not cache.has_topic(name):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        entries = _topic_entries(config, overrides(name))
    elif resource.resource_type == BROKER:
        if name not in ("", str(config.broker_id)):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"broker {name} is not this one, {config.broker_id}"
            )
        entries = _broker_entries(config) if name else []
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type}")
    wanted = resource.configuration_keys
    return [
        _entry(key, values, request.include_synonyms, resource.resource_type == BROKER)
        for key, values in entries
        if wanted is None or key in wanted
    ]


_Values = list[tuple[str, str | None, int]]
"""(name, value, source) of one setting, the one in force first."""


def _topic_entries(config: BrokerConfig, own: Mapping[str, str]) -> list[tuple[str, _Values]]:
    entries = []
    defaults = LogConfig()
    for field, setting in sorted(declared(LogConfig).items(), key=lambda item: item[1].name):
        values: _Values = []
        if setting.name in own:
            values.append((setting.name, own[setting.name], FROM_TOPIC))
        broker_name = BROKER_NAME.get(setting.name, setting.name)
        if getattr(config.log, field) != getattr(defaults, field):
            values.append((broker_name, text(getattr(config.log, field)), FROM_STATIC_BROKER))
        values.append((broker_name, text(getattr(defaults, field)), FROM_DEFAULT))
        entries.append((setting.name, values))
    return entries


def _broker_entries(config: BrokerConfig) -> list[tuple[str, _Values]]:
    entries = []
    for part in (config, config.offsets, config.groups):
        for field, setting in declared(type(part)).items():
            source = FROM_STATIC_BROKER if setting.name in config.given else FROM_DEFAULT
            entries.append((setting.name, [(setting.name, text(getattr(part, field)), source)]))
    for topic_name, broker_name in BROKER_NAME.items():
        source = FROM_STATIC_BROKER if broker_name in config.given else FROM_DEFAULT
        value = text(getattr(config.log, topic_name.replace(".", "_")))
        entries.append((broker_name, [(broker_name, value, source)]))
    return sorted(entries, key=lambda entry: entry[0])


def _entry(
    name: str, values: _Values, synonyms: bool, read_only: bool
) -> DescribeConfigsResponseConfig:
    _, value, source = values[0]
    return DescribeConfigsResponseConfig(
        name=name,
        value=value,
        read_only=read_only,
        is_default=source == FROM_DEFAULT,
        config_source=source,
        is_sensitive=False,
        synonyms=[DescribeConfigsResponseSynonym(name=n, value=v, source=s) for n, v, s in values]
        if synonyms
        else [],
    )


def text(value: object) -> str | None:
    """A setting's value as Kafka writes it; null for one that has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
