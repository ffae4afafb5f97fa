"""Consumer groups and offset management on a replicated log: what programs import.

    from kgroup import Admin, ConsumerConnector, FetchRequest, Producer, SimpleConsumer
    from kgroup import OffsetAndMetadata, TopicPartition
    from kgroup import EARLIEST_TIME, LATEST_TIME, Timestamp
    from kgroup import MessageAndMetadata, MessageStream, RecordMetadata    # for annotations

The clients are asyncio's; `kgroup.blocking` has their blocking twins under the same names.
`kgroup.errors` has what they raise, `kgroup.serializers` what turns values into bytes and back,
`kgroup.admin` the values that Admin takes and returns, `kgroup.spark` the data source for PySpark,
`kgroup.testing` clusters for tests, a real one and a simulated one.

Nothing is loaded before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clients.admin import Admin
    from clients.cluster_view import BrokerEndpoint
    from clients.fetch_requests import Isolation
    from clients.fetching import FetchedPartition
    from clients.group_metadata import ConsumerGroupMetadata
    from clients.high_level.connector import ConsumerConnector
    from clients.high_level.delivery import ConsumerRebalanceListener
    from clients.high_level.metrics import ConsumerMetrics
    from clients.high_level.seeking import Timestamp
    from clients.high_level.streams import MessageAndMetadata, MessageBatches, MessageStream
    from clients.keyed_message import KeyedMessage
    from clients.producer.deliveries import RecordMetadata
    from clients.producer.handlers import ProducerMetrics
    from clients.producer.messages import ProducerData
    from clients.producer.producer import Producer
    from clients.simple_consumer import FetchRequest, SimpleConsumer
    from groups.zookeeper.filters import Blacklist, TopicFilter, Whitelist
    from kgroup import admin, blocking, errors, serializers, spark
    from offsets.requests import FetchedOffset
    from protocol.special_values import EARLIEST_TIME, LATEST_TIME
    from protocol.topic_partition import OffsetAndMetadata, TopicPartition
    from protocol.version import __version__

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Admin",
    "Blacklist",
    "BrokerEndpoint",
    "ConsumerConnector",
    "ConsumerGroupMetadata",
    "ConsumerMetrics",
    "ConsumerRebalanceListener",
    "FetchRequest",
    "FetchedOffset",
    "FetchedPartition",
    "Isolation",
    "KeyedMessage",
    "MessageAndMetadata",
    "MessageBatches",
    "MessageStream",
    "OffsetAndMetadata",
    "Producer",
    "ProducerData",
    "ProducerMetrics",
    "RecordMetadata",
    "SimpleConsumer",
    "Timestamp",
    "TopicFilter",
    "TopicPartition",
    "Whitelist",
    "__version__",
    "admin",
    "blocking",
    "errors",
    "serializers",
    "spark",
]

_HOMES = {
    "Admin": "clients.admin",
    "Blacklist": "groups.zookeeper.filters",
    "BrokerEndpoint": "clients.cluster_view",
    "ConsumerConnector": "clients.high_level.connector",
    "ConsumerGroupMetadata": "clients.group_metadata",
    "ConsumerMetrics": "clients.high_level.metrics",
    "ConsumerRebalanceListener": "clients.high_level.delivery",
    "EARLIEST_TIME": "protocol.special_values",
    "FetchRequest": "clients.simple_consumer",
    "FetchedOffset": "offsets.requests",
    "FetchedPartition": "clients.fetching",
    "Isolation": "clients.fetch_requests",
    "KeyedMessage": "clients.keyed_message",
    "LATEST_TIME": "protocol.special_values",
    "MessageAndMetadata": "clients.high_level.streams",
    "MessageBatches": "clients.high_level.streams",
    "MessageStream": "clients.high_level.streams",
    "OffsetAndMetadata": "protocol.topic_partition",
    "Producer": "clients.producer.producer",
    "ProducerData": "clients.producer.messages",
    "ProducerMetrics": "clients.producer.handlers",
    "RecordMetadata": "clients.producer.deliveries",
    "SimpleConsumer": "clients.simple_consumer",
    "Timestamp": "clients.high_level.seeking",
    "TopicFilter": "groups.zookeeper.filters",
    "TopicPartition": "protocol.topic_partition",
    "Whitelist": "groups.zookeeper.filters",
    "__version__": "protocol.version",
}
_MODULES = frozenset(__all__) - _HOMES.keys()


def __getattr__(name: str) -> Any:
    """Load a name when it is first used. Raises AttributeError."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
