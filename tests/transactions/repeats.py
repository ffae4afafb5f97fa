"""Requests of transactions that come twice: which ones may, and when. Pure.

A client whose response is lost sends its request again. Or a request that it has given up arrives
late, when its transaction may be over.

Without KIP-890 a coordinator cannot tell an EndTxn that is late from the one of the next
transaction, which has the same producer id and epoch, nor a late TxnOffsetCommit
(`test_late_requests.py`). So a copy of those two, of which their producer knows nothing, does not
come late. But any request may come late whose connection its producer has lost: it takes another
epoch then.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.api_key import ApiKey

TWICE = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
)
"""The responses of these may be lost, so that they come again."""

LATE = TWICE - {ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN}
"""A copy of these may come at any time later."""


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Go through the whole requests in `data`, which begins with one: API key and frame."""
    while len(data) > 4:
        size = 4 + int.from_bytes(data[:4], "big")
        frame, data = data[:size], data[size:]
        if len(frame) == size:
            yield int.from_bytes(frame[4:6], "big"), frame
