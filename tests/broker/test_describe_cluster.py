"""DescribeCluster: brokers by the listener of the client, and the controller."""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers import describe_cluster
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
)
from tests.broker.replication.replicas import context


def endpoint(port: int, listener: str) -> UpdateMetadataRequestEndpoint:
    return UpdateMetadataRequestEndpoint(
        port=port, host="h", listener=listener, security_protocol=0
    )


def test_brokers_are_named_with_the_address_of_the_listener_asked_over() -> None:
    cache = MetadataCache()
    both = [endpoint(1, "SSL"), endpoint(2, "PLAINTEXT")]
    brokers = [
        UpdateMetadataRequestLiveBroker(id=0, endpoints=both, rack="r"),
        UpdateMetadataRequestLiveBroker(id=1, endpoints=both[:1]),
    ]
    cache.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers))

    response = describe_cluster.handle(cache, "cluster", DescribeClusterRequest(), context(0))

    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [(0, "h", 2, "r")]
    assert (response.controller_id, response.cluster_id) == (1, "cluster")
    assert response.error_code == 0


def test_before_the_controller_has_spoken_there_is_none() -> None:
    response = describe_cluster.handle(
        MetadataCache(), "cluster", DescribeClusterRequest(), context(0)
    )
    assert (response.controller_id, list(response.brokers)) == (-1, [])
