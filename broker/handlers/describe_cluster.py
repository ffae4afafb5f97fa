"""DescribeCluster: the brokers and the controller, as this broker's cache has them."""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataCache
from broker.network.request_context import RequestContext, cluster_operations
from protocol.messages.describe_cluster import (
    NOT_ASKED,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)


def handle(
    cache: MetadataCache,
    cluster_id: str,
    request: DescribeClusterRequest,
    context: RequestContext,
) -> DescribeClusterResponse:
    """Respond from the cache. A broker without an address on the client's listener is left out."""
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        brokers=[
            DescribeClusterResponseBroker(
                broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in cache.brokers.values()
            if (endpoint := broker.endpoints.get(context.listener))
        ],
        cluster_authorized_operations=(
            cluster_operations(context)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )
