"""DescribeConfigs: the settings of topics and of this broker, and where each comes from.

A setting may have several values. The first of these that exists is effective: the topic's own, the
broker's own, the one for all brokers (both in ZooKeeper, KIP-226), the properties file's, the
default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.topic_names import check_legal
from broker.handlers.config_authorization import require_config_access
from broker.network.authorization import Operation
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, refused_topics
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

# The protocol's numbers of sources.
FROM_TOPIC = 1
FROM_BROKER = 2
FROM_ALL_BROKERS = 3
FROM_STATIC_BROKER = 4
FROM_DEFAULT = 5

SENSITIVE = re.compile(
    r"(password|encoder\.(old\.)?secret|(secret|master|keystore)\.key"
    r"|certificate\.chain|truststore\.certificates|jaas\.config)$"
)
"""Names of settings whose values are never shown."""


def handle(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> Outcome:
    """Respond when the settings of the named topics have been read."""
    names = {
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == TOPIC and cache.has_topic(resource.resource_name)
    }
    refused = refused_topics(context, Operation.DESCRIBE_CONFIGS, names)

    # Another broker may have changed them, with the notification still on its way.
    return topics.when_read(
        names.difference(refused),
        lambda: _describe_all(cache, topics, brokers, request, context),
        brokers.static.request_timeout_ms,
    )


def _describe_all(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        code = ErrorCode.NONE
        message = None
        configs = []
        try:
            require_config_access(
                context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
            )
            # Null asks for all settings.
            wanted = resource.configuration_keys

            configs = [
                setting.on_wire(request.include_synonyms)
                for setting in _describe(cache, topics, brokers, resource)
                if wanted is None or setting.name in wanted
            ]
        except ApiError as error:
            code = error.code
            message = error.detail
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


Value = tuple[str, str | None, int]
"""The name under which a setting has a value, the value, and its source."""


@attrs.frozen
class _Described:
    """A setting with all its values, the effective one first."""

    name: str
    values: list[Value]
    read_only: bool = False

    def on_wire(self, include_synonyms: bool) -> DescribeConfigsResponseConfig:
        """Return the setting for the response; a sensitive one without its values."""
        # A sensitive setting still shows that it is set, and where.
        is_sensitive = SENSITIVE.search(self.name) is not None
        values = [
            (name, None if is_sensitive else value, source) for name, value, source in self.values
        ]

        synonyms = []
        if include_synonyms:
            synonyms = [
                DescribeConfigsResponseSynonym(name=name, value=value, source=source)
                for name, value, source in values
            ]
        _, effective, source = values[0]
        return DescribeConfigsResponseConfig(
            name=self.name,
            value=effective,
            read_only=self.read_only,
            is_default=source == FROM_DEFAULT,
            config_source=source,
            is_sensitive=is_sensitive,
            synonyms=synonyms,
        )


def _describe(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    resource: DescribeConfigsRequestResource,
) -> list[_Described]:
    """Return the settings of a resource. Raises ApiError."""
    name = resource.resource_name

    # A topic.
    if resource.resource_type == TOPIC:
        if not cache.has_topic(name):
            # An illegal name has an error of its own.
            check_legal(name)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not topics.is_known(name):
            reason = f"The settings of topic {name} could not be read from ZooKeeper in time"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, reason)
        return _describe_topic(brokers, topics.overrides(name))

    # Loggers (KIP-412) are not described.
    if resource.resource_type == BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unsupported resource type: BROKER_LOGGER")
    if resource.resource_type != BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.meaning)

    # The empty name: the values for all brokers.
    if not name:
        return [
            _Described(setting, [(setting, value, FROM_ALL_BROKERS)])
            for setting, value in sorted(brokers.cluster.items())
        ]

    # The properties file of another broker is not known here.
    own = brokers.static.broker_id
    if parse_broker_id(name) != own:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or empty string, but received {name}",
        )
    return _describe_broker(brokers)


def _describe_topic(brokers: BrokerConfigs, own: Mapping[str, str]) -> list[_Described]:
    static = brokers.static.log
    defaults = LogConfig()
    described = []

    for field, setting in sorted(
        declared_settings(LogConfig).items(), key=lambda item: item[1].name
    ):
        # From the most specific value to the default.
        broker_name = BROKER_NAME.get(setting.name, setting.name)
        values: list[Value] = []
        if setting.name in own:
            values.append((setting.name, own[setting.name], FROM_TOPIC))
        values += _dynamic_values(brokers, broker_name)
        # The file counts as a source where it differs from the default.
        if getattr(static, field) != getattr(defaults, field):
            values.append((broker_name, text(getattr(static, field)), FROM_STATIC_BROKER))
        values.append((broker_name, text(getattr(defaults, field)), FROM_DEFAULT))
        described.append(_Described(setting.name, values))
    return described


def _describe_broker(brokers: BrokerConfigs) -> list[_Described]:
    static = brokers.static

    # The broker's own settings, then those of logs that brokers have under another name.
    described = [
        _describe_field(brokers, setting.name, part, field)
        for part in (static, static.cleaner, static.offsets, static.groups)
        for field, setting in declared_settings(type(part)).items()
    ]
    described += [
        _describe_field(brokers, BROKER_NAME[setting.name], static.log, field)
        for field, setting in declared_settings(LogConfig).items()
        if setting.name in BROKER_NAME
    ]

    # Settings of Kafka that are accepted and do nothing here, as the file has them.
    described += [
        _Described(name, [(name, value, FROM_STATIC_BROKER)], read_only=True)
        for name, value in static.given.items()
        if name in ACCEPTED or name.startswith("listener.name.")
    ]
    return sorted(described, key=lambda setting: setting.name)


def _describe_field(
    brokers: BrokerConfigs, name: str, part: attrs.AttrsInstance, field: str
) -> _Described:
    """Describe a setting of the broker whose static value is `field` of `part`."""
    value = getattr(part, field)
    default = attrs.fields_dict(type(part))[field].default
    values = _dynamic_values(brokers, name)
    # A value that the file names counts even if it is the default.
    if name in brokers.static.given or value != default:
        values.append((name, text(value), FROM_STATIC_BROKER))
    if default is not attrs.NOTHING:
        values.append((name, text(default), FROM_DEFAULT))
    return _Described(name, values, read_only=name not in DYNAMIC)


def _dynamic_values(brokers: BrokerConfigs, name: str) -> list[Value]:
    # In order of precedence.
    layers = ((brokers.own, FROM_BROKER), (brokers.cluster, FROM_ALL_BROKERS))
    return [(name, layer[name], source) for layer, source in layers if name in layer]


def text(value: object) -> str | None:
    """Write a setting's value as Kafka does; null if it has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
