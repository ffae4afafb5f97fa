"""What a request costs its client, and what the client is told."""

from __future__ import annotations

from typing import Any

import pytest

from broker.network.dispatch import NO_RESPONSE, Dispatched
from broker.network.request_context import RequestContext
from broker.network.session import Principal
from broker.quotas.charging import RequestBill
from broker.quotas.client_quotas import ClientQuotas, QuotaKind
from protocol.api_key import ApiKey
from protocol.encoding import Encoded, decode, encode
from protocol.errors import ErrorCode
from protocol.header import RequestHeader
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.update_metadata import UpdateMetadataResponse
from protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from zk.znodes import ClientEntity

CONTEXT = RequestContext(11, "c", "PLAINTEXT", "h:1", 0, principal=Principal("User", "u"))
SECOND_NS = 1_000_000_000
LISTED = ListGroupsResponse(error_code=0, groups=[])


def charge(
    kind: QuotaKind, bound: float, key: ApiKey, response: Any, *, request: Any = None, **of: int
) -> tuple[Dispatched, ClientQuotas]:
    """Charge one request of u's client c, which has this quota."""
    quotas = ClientQuotas()
    quotas.set_all(ClientEntity("u"), {kind.value: str(bound)})
    dispatched = Dispatched(RequestHeader(key, 11, 1, "c"), response)
    bill = RequestBill(quotas, lambda: 0)
    sizes = {"size": 0, "spent_ns": 0} | of
    return bill.charge(dispatched, request=request, context=CONTEXT, **sizes), quotas


def test_time_beyond_the_quota_is_a_silence_of_a_window_at_most() -> None:
    charged, _ = charge(QuotaKind.REQUEST, 1, ApiKey.LIST_GROUPS, LISTED, spent_ns=SECOND_NS)
    assert charged.throttle_ms == 1000
    assert charged.outcome == ListGroupsResponse(throttle_time_ms=1000, error_code=0, groups=[])
    assert LISTED.throttle_time_ms == 0


def test_time_within_the_quota_changes_nothing() -> None:
    charged, _ = charge(QuotaKind.REQUEST, 50, ApiKey.LIST_GROUPS, LISTED, spent_ns=SECOND_NS)
    assert charged.outcome is LISTED
    assert charged.throttle_ms == 0


def test_brokers_have_no_quota_of_time_unless_they_are_refused() -> None:
    def of(response: Any) -> int:
        charged, _ = charge(
            QuotaKind.REQUEST, 1, ApiKey.UPDATE_METADATA, response, spent_ns=SECOND_NS
        )
        return charged.throttle_ms

    assert of(UpdateMetadataResponse(error_code=0)) == 0
    written = WriteTxnMarkersResponse(markers=[])
    free, _ = charge(QuotaKind.REQUEST, 1, ApiKey.WRITE_TXN_MARKERS, written, spent_ns=SECOND_NS)
    assert free.throttle_ms == 0
    assert of(UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) == 1000


def test_follower_s_fetch_is_free() -> None:
    follower = FetchRequest(replica_id=2, max_wait_ms=0, min_bytes=0, topics=[])
    for kind in (QuotaKind.FETCH, QuotaKind.REQUEST):
        response = fetched(10_000)
        charged, _ = charge(kind, 1, ApiKey.FETCH, response, request=follower, spent_ns=SECOND_NS)
        assert charged.outcome is response


def test_produce_costs_its_size_also_without_a_response() -> None:
    request = ProduceRequest(acks=0, timeout_ms=0, topic_data=[])
    for response in (NO_RESPONSE, ProduceResponse(responses=[])):
        charged, _ = charge(
            QuotaKind.PRODUCE, 100, ApiKey.PRODUCE, response, request=request, size=2000
        )
        assert charged.throttle_ms == 10_000
        assert getattr(charged.outcome, "throttle_time_ms", 10_000) == 10_000


def fetched(size: int) -> FetchResponse:
    part = FetchResponsePartition(
        partition_index=0, error_code=0, high_watermark=9, records=bytes(size)
    )
    return FetchResponse(session_id=7, responses=[FetchResponseTopic(topic="t", partitions=[part])])


@pytest.mark.parametrize(("epoch", "session_id"), [(-1, 0), (0, 0), (5, 7)])
def test_fetch_above_the_quota_gets_nothing_and_pays_nothing(epoch: int, session_id: int) -> None:
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, session_id=7, session_epoch=epoch, topics=[]
    )
    charged, quotas = charge(QuotaKind.FETCH, 100, ApiKey.FETCH, fetched(2000), request=request)
    assert charged.throttle_ms > 10_000
    assert charged.outcome == FetchResponse(
        throttle_time_ms=charged.throttle_ms, session_id=session_id, responses=[]
    )
    assert quotas.record(QuotaKind.FETCH, "u", "c", 1000, 0) == 0


def test_fetch_within_the_quota_is_as_it_was() -> None:
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[])
    response = fetched(500)
    charged, quotas = charge(QuotaKind.FETCH, 100, ApiKey.FETCH, response, request=request)
    assert charged.outcome is response
    assert quotas.record(QuotaKind.FETCH, "u", "c", 500, 0) > 0


def test_metadata_that_is_encoded_already_says_the_time() -> None:
    whole = MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[])
    response = Encoded(MetadataResponse, encode(whole, 8))
    quotas = ClientQuotas()
    quotas.set_all(ClientEntity("u"), {QuotaKind.REQUEST.value: "1"})
    dispatched = Dispatched(RequestHeader(ApiKey.METADATA, 8, 1, "c"), response)
    charged = RequestBill(quotas, lambda: 0).charge(
        dispatched,
        request=ListGroupsRequest(),
        context=CONTEXT,
        size=0,
        spent_ns=SECOND_NS,
    )
    assert isinstance(charged.outcome, Encoded)
    read, _ = decode(MetadataResponse, 8, charged.outcome.body)
    assert read.throttle_time_ms == charged.throttle_ms == 1000
    assert read.cluster_id == "c"
