"""Reading `__consumer_offsets` while one of its brokers does not respond."""

from functools import partial
from typing import Any

import pytest

from clients.admin import Admin
from clients.watching.offsets_topic import OffsetsTopicReading
from protocol.api_key import ApiKey
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from protocol.topic_partition import TopicPartition
from tests.clients.admin.running_admin import ends
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time


def no_settings(request: Any) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponseResult(
                error_code=0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


@pytest.mark.parametrize(
    ("is_dead", "reason"), [(True, "connection refused"), (False, "not answered in time")]
)
def test_a_broker_that_does_not_respond_is_named_and_waited_for_once(
    is_dead: bool, reason: str
) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({OFFSETS_TOPIC: 4}, node_id=1) as living,
            ScriptedBroker({OFFSETS_TOPIC: 4}, node_id=2) as other,
        ):
            living.peers[2] = other.port
            living.leaders.update({TopicPartition(OFFSETS_TOPIC, n): 2 for n in (1, 2, 3)})
            living.answers[ApiKey.LIST_OFFSETS] = partial(ends, offset=0)
            living.answers[ApiKey.DESCRIBE_CONFIGS] = no_settings
            living.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request: DescribeLogDirsResponse(
                results=[]
            )
            # It has records, which are there to be read.
            other.answers[ApiKey.LIST_OFFSETS] = partial(ends, offset=5)
            for api in (ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.FETCH):
                other.answers[api] = lambda request: SILENCE
            other.answers[ApiKey.METADATA] = living.metadata
            if is_dead:
                await other.__aexit__()

            settings = {
                "bootstrap.servers": living.bootstrap,
                "request.timeout.ms": 200,
                "default.api.timeout.ms": 200,
            }
            async with Admin(settings, waits_for_dead=False) as admin:
                reading = OffsetsTopicReading(admin)
                facts = await reading.gather()

            assert facts is not None
            assert facts.silent.keys() == {2}
            assert f"127.0.0.1:{other.port}: " in facts.silent[2]
            assert reason in facts.silent[2]
            errors = {fact.partition_id: fact.error for fact in facts.partitions}
            assert errors == {0: None} | dict.fromkeys((1, 2, 3), facts.silent[2])
            assert {failure.what for failure in reading.failures} == {
                "log directories of broker 2",
                "settings of broker 2",
            }
            assert other.asked(ApiKey.FETCH) == []

    run_in_own_time(scenario())
