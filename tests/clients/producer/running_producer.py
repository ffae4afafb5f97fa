"""A producer beside a broker, in one loop."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import ImpatientLoop, run_in_own_time

P0 = TopicPartition("t", 0)


def with_producer(
    scenario: Callable[[Producer, ScriptedBroker], Awaitable[Any]],
    topics: Mapping[str, int] | None = None,
    **settings: Any,
) -> Any:
    """Run a scenario with a producer, with a time limit."""

    async def run() -> Any:
        async with ScriptedBroker(dict(topics or {"t": 1})) as broker:
            fast = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **settings}
            async with Producer(bootstrap_servers=broker.bootstrap, **fast) as producer:
                return await scenario(producer, broker)

    return run_in_own_time(run(), loop=ImpatientLoop)


def values(broker: ScriptedBroker, partition: TopicPartition = P0) -> list[bytes | None]:
    return [record.value for record in broker.log[partition]]
