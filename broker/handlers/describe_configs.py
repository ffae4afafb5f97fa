"""DescribeConfigs: the settings of topics and of this broker, and where each comes from."""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.topic_names import check_legal
from broker.handlers.config_authorization import require_config_access
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, refused_topics
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config_resources import BROKER, BROKER_LOGGER, TOPIC, parse_broker_id
from broker.settings.described_settings import (
    FROM_DEFAULT,
    TYPE_NUMBERS,
    DescribedSetting,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from broker.settings.topic_configs import TopicConfigs
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)


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
    refused = refused_topics(context, Operation.DESCRIBE_CONFIGS, names, quietly=True)

    # Another broker may have changed them, with the notification still on its way.
    return topics.when_read(
        names.difference(refused),
        lambda: _describe_all(cache, topics, brokers, request, context),
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
            # No names ask for all settings.
            wanted = frozenset(resource.configuration_keys or ())

            configs = [
                _config(setting, request)
                for setting in _describe(cache, topics, brokers, resource)
                if not wanted or setting.name in wanted
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


def _config(
    setting: DescribedSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResponseConfig:
    """Return a setting for the response, with as much of it as the request asks for."""
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsResponseSynonym(name=name, value=value, source=source)
            for name, value, source in setting.values
        ]
    return DescribeConfigsResponseConfig(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        is_default=setting.source == FROM_DEFAULT,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=synonyms,
        config_type=TYPE_NUMBERS[setting.type],
        documentation=setting.documentation if request.include_documentation else None,
    )


def _describe(
    cache: MetadataCache,
    topics: TopicConfigs,
    brokers: BrokerConfigs,
    resource: DescribeConfigsRequestResource,
) -> list[DescribedSetting]:
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
        return describe_topic(brokers, topics.overrides(name))

    # Loggers (KIP-412) are not described.
    if resource.resource_type == BROKER_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unsupported resource type: BROKER_LOGGER")
    if resource.resource_type != BROKER:
        raise ApiError(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.meaning)

    # The empty name: the values for all brokers.
    if not name:
        return describe_all_brokers(brokers)

    # The properties file of another broker is not known here.
    own = brokers.static.broker_id
    if parse_broker_id(name) != own:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or empty string, but received {name}",
        )
    return describe_broker(brokers)
