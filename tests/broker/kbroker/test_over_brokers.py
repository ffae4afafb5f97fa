"""Commands work with brokers of several releases."""

from typing import Any

import pytest

from broker.kbroker.over_brokers import OverBrokers
from clients.admin import Admin, ConfigResource
from clients.errors import KgroupError
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import alter_configs
from protocol.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    error_response,
)
from tests.clients.scripted_broker import SILENCE, Answer, ScriptedBroker, all_versions


def describe_topic(request: Any) -> DescribeConfigsResponse:
    """Respond with a topic that has two settings of its own."""
    (resource,) = request.resources
    configs = [
        DescribeConfigsResponseConfig(
            name=name, value=value, read_only=False, config_source=source, is_sensitive=False
        )
        for name, value, source in (
            ("segment.ms", "9", 1),
            ("retention.ms", "5", 1),
            ("flush.ms", "7", 5),
        )
    ]
    result = DescribeConfigsResponseResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )
    return DescribeConfigsResponse(results=[result])


async def test_a_broker_that_takes_all_settings_at_once_is_given_those_that_stay_as_well() -> None:
    older = all_versions(INCREMENTAL_ALTER_CONFIGS=(0, -1))
    async with ScriptedBroker({"t": 1}) as broker:
        broker.answers[ApiKey.API_VERSIONS] = lambda request: older
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = describe_topic
        broker.answers[ApiKey.ALTER_CONFIGS] = lambda request: alter_configs.error_response(
            request, ErrorCode.NONE
        )
        async with Admin(broker.bootstrap) as admin:
            topic = ConfigResource.topic("t")
            changed = {topic: {"segment.ms": None, "cleanup.policy": "compact"}}
            assert await OverBrokers(admin).change_configs(changed) == {topic: None}
        (resource,) = broker.asked(ApiKey.ALTER_CONFIGS)[0].resources
        assert {config.name: config.value for config in resource.configs} == {
            "retention.ms": "5",
            "cleanup.policy": "compact",
        }


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda request: SILENCE, "DESCRIBE_CONFIGS was not answered in time"),
        (lambda request: error_response(request, ErrorCode.REQUEST_TIMED_OUT), "REQUEST_TIMED_OUT"),
    ],
)
async def test_settings_that_brokers_do_not_tell_in_time_are_an_error_of_their_topics(
    answer: Answer, message: str
) -> None:
    async with ScriptedBroker({"t": 1}) as broker:
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = answer
        times = {"request.timeout.ms": 50, "default.api.timeout.ms": 50}
        async with Admin(broker.bootstrap, **times) as admin:
            cluster = OverBrokers(admin)
            for told in (
                await cluster.describe_min_insync_replicas(["t"]),
                await cluster.describe_each_own_config(["t"]),
            ):
                assert isinstance(told["t"], KgroupError)
                assert message in str(told["t"])
