"""Transactions through fail-over: what a follower knows of them when it leads."""

from __future__ import annotations

from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.special_values import READ_COMMITTED
from tests.broker.fetch_requests import T0, request, values
from tests.broker.replication.replicas import NOW_MS
from tests.broker.small_cluster import Broker, SmallCluster, in_virtual_time
from tests.broker.transactions import P, in_transaction, produce_request
from tests.stage.waiting import until

OTHER = P + 1


async def send(broker: Broker, value: bytes, producer_id: int = P, sequence: int = 0) -> None:
    records = in_transaction(value, producer_id=producer_id, sequence=sequence)
    response = await broker.ask(produce_request(records, acks=1))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def end(broker: Broker, kind: int, producer_id: int = P, epoch: int = 0) -> None:
    """Append a marker, as a coordinator has it."""
    marker = encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
    )
    broker.manager.append_local(T0, marker, NOW_MS)


async def committed(broker: Broker) -> list[bytes]:
    """Return what a reader of committed data keeps of a fetch."""
    response = await broker.ask(request((T0, 0), isolation=READ_COMMITTED))
    (part,) = response.responses[0].partitions
    assert part.last_stable_offset == broker.partition.last_stable_offset
    aborted = {(t.producer_id, t.first_offset) for t in part.aborted_transactions}
    assert aborted <= {(P, 0)}
    left_out = {b"aborted"} if aborted else set()
    return [value for value in values(part) if value not in left_out]


def ends(partition: Partition) -> tuple[int, int]:
    return partition.last_stable_offset, partition.high_watermark


def test_a_follower_that_leads_knows_the_transactions_of_the_leader_before() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        await send(cluster[0], b"aborted")
        end(cluster[0], ABORT)
        await send(cluster[0], b"committed", sequence=1)
        end(cluster[0], COMMIT)
        await send(cluster[0], b"open", producer_id=OTHER)
        await cluster.in_step()
        assert [ends(cluster[n].partition) for n in (0, 1)] == [(4, 5)] * 2

        cluster.kill(0)
        await cluster.elect(1, (1,))
        assert ends(cluster[1].partition) == (4, 5)
        assert await committed(cluster[1]) == [b"committed"]
        end(cluster[1], COMMIT, producer_id=OTHER)
        assert await committed(cluster[1]) == [b"committed", b"open"]

        # The one that was killed follows, and has the same.
        await cluster.start_broker(0)
        await cluster.elect(1, (1,))
        await until(lambda: ends(cluster[0].partition) == (6, 6), "broker 0 has caught up")
        aborted = [cluster[n].partition.log.aborted_transactions(0, 6) for n in (0, 1)]
        assert aborted[0] == aborted[1] != []

    in_virtual_time(story)


def test_a_marker_that_goes_with_its_leader_leaves_the_transaction_open() -> None:
    async def story() -> None:
        cluster = await SmallCluster().start()
        await send(cluster[0], b"aborted")
        await cluster.in_step()
        cluster.part(1)
        end(cluster[0], COMMIT)
        assert ends(cluster[0].partition) == (0, 1)

        # The other one leads without the marker, and gets another one.
        await cluster.elect(1, (1,))
        cluster.cut.clear()
        assert ends(cluster[1].partition) == (0, 1)
        assert await committed(cluster[1]) == []
        end(cluster[1], ABORT, epoch=1)
        await cluster.elect(1, (1,))
        await until(lambda: ends(cluster[0].partition) == (2, 2), "broker 0 has caught up")
        assert cluster[0].partition.log.producers.producers[P].epoch == 1
        assert await committed(cluster[1]) == []
        aborted = [cluster[n].partition.log.aborted_transactions(0, 2) for n in (0, 1)]
        assert aborted[0] == aborted[1] != []

    in_virtual_time(story)
