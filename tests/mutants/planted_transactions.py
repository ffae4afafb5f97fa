"""Bugs of transactions, to be planted where we have none.

Stories of movers and copiers (`tests/transactions/story.py`) find each.
"""

from __future__ import annotations

from tests.mutants.planted import SEEDS, Bug, Stories

TRANSACTIONS = Stories(("-m", "tests.transactions.story", SEEDS), r"^seed (\d+)$")

TRANSACTION_BUGS: tuple[Bug, ...] = (
    Bug(
        "the markers of a transaction are forgotten when its coordinator moves",
        "groups.transactions.decide:resume",
        "effects += _send_markers(shard, transactional_id, current, now_ms)",
        "",
        stories=TRANSACTIONS,
    ),
    Bug(
        "a transaction is complete with its first marker",
        "groups.transactions.decide:note_markers",
        "live.unwritten.difference_update(event.partitions)",
        "live.unwritten.clear()",
        stories=TRANSACTIONS,
    ),
    Bug(
        "a producer that was replaced is not fenced",
        "groups.transactions.decide:_refusal",
        "event.epoch != shard.epoch_of(event.transactional_id, current)",
        "False",
        stories=TRANSACTIONS,
    ),
    Bug(
        "who takes over does not abort what is open",
        "groups.transactions.decide:init_producer",
        "current is not None and current.state is ONGOING",
        "False",
        stories=TRANSACTIONS,
    ),
    Bug(
        "readers of committed data are not told of aborted transactions",
        "core_log.log:Log.aborted_transactions",
        "self.segments.aborted_transactions(offset, min(end_offset, self.log_end_offset))",
        "[]",
        stories=TRANSACTIONS,
    ),
    Bug(
        "readers of committed data read up to the high watermark",
        "broker.replication.partition:Partition.last_stable_offset",
        "unstable is None",
        "True",
        stories=TRANSACTIONS,
    ),
    Bug(
        "offsets of a transaction count before its end",
        "groups.coordinator.shard:GroupShard.replay",
        "producer_id != NO_PRODUCER",
        "False",
        seed=1,
        stories=TRANSACTIONS,
    ),
    Bug(
        "what was sent and not answered is forgotten when its transaction ends",
        "clients.producer.transactions.decide:_note_lost",
        "ErrorCode.NETWORK_EXCEPTION not in event.codes.values()",
        "True",
        seed=1,
        stories=TRANSACTIONS,
    ),
)
