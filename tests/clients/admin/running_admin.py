"""An admin client beside a broker, in one loop."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from clients.admin import Admin
from protocol.api_key import ApiKey
from protocol.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import run_in_own_time

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def with_admin(
    scenario: Callable[[Admin, ScriptedBroker, ScriptedBroker], Awaitable[Any]],
    retry_backoff_ms: int = 1,
) -> Any:
    """Run a scenario on brokers 1 and 2. Of topic t, 1 leads partitions 0 and 1, 2 leads 2."""

    async def run() -> Any:
        async with (
            ScriptedBroker({"t": 3}, node_id=1) as broker_1,
            ScriptedBroker({"t": 3}, node_id=2) as broker_2,
        ):
            for broker, other in ((broker_1, broker_2), (broker_2, broker_1)):
                broker.peers[other.node_id] = other.port
                broker.leaders.update({P0: 1, P1: 1, P2: 2})
                broker.answers[ApiKey.LIST_OFFSETS] = partial(ends, offset=broker.node_id)
            settings = {
                "bootstrap.servers": broker_1.bootstrap,
                "retry.backoff.ms": retry_backoff_ms,
            }
            async with Admin(settings) as admin:
                return await scenario(admin, broker_1, broker_2)

    return run_in_own_time(run())


def ends(request: Any, offset: int, error: int = 0) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartition(
                        partition_index=p.partition_index, error_code=error, offset=offset
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
