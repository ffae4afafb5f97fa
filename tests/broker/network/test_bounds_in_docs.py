"""The numbers in docs/security.md, "Bounds", are those of the code."""

import pytest

from broker.authentication import gate, key_document
from broker.authorization import acl_authorizer
from broker.handlers import (
    create_topics,
    delete_groups,
    describe_producers,
    describe_transactions,
    list_groups,
    list_transactions,
    metadata,
    offset_fetch,
)
from broker.metrics import metrics_server
from broker.network import (
    acceptor,
    connection,
    connection_quotas,
    deadlines,
    deferred,
    dispatch,
    down_conversion,
    large_requests,
    listener,
    long_answers,
    queued_bytes,
    turns,
)
from broker.process import freed_memory, process_limits, watchdog
from broker.quotas import client_quotas
from broker.replication import fetch_sessions
from groups.coordinator import transactional_commits
from groups.coordinator.membership import join
from protocol import bounds
from protocol.sasl import scram
from protocol.tls import handshakes, transport
from tests.stage.processes import ROOT

KIB, MIB = 2**10, 2**20
PARTS = {2: "half", 8: "an eighth", 16: "a sixteenth", 64: "a 64th"}

_, _, BOUNDS = (ROOT / "docs" / "security.md").read_text("utf-8").partition("### Bounds\n")


@pytest.mark.parametrize(
    "words",
    [
        f"files stay free for logs: {process_limits.DESCRIPTOR_RESERVE}, or a quarter",
        f"{listener.BACKLOG} a listener; {acceptor.ACCEPTED_PER_TURN} are accepted in a turn",
        f"| {listener.MAX_DELAYED:,}; {connection_quotas.MAX_COUNTED_ADDRESSES:,}: the oldest",
        f"{deadlines.FRAME_SILENCE_S:g} s of silence within it, and {deadlines.FRAME_BASE_S:g} s "
        f"and a second for each {'KiB' if deadlines.FRAME_BYTES_PER_S == KIB else '?'}",
        f"{deadlines.LOGIN_STEP_S:g} s to its first frame",
        f"{handshakes.MAX_AT_ONCE:,} at once, {transport.HANDSHAKE_TIMEOUT_S:g} s each, "
        f"{handshakes.TURN_S * 1000:g} ms of a turn",
        f"512 KiB, and {gate.MAX_ELEMENTS:,} elements; of a SCRAM login "
        f"{scram.MAX_FIRST_BYTES // KIB} KiB are kept",
        f"one that is answered, {gate.MAX_QUESTIONS} in all",
        f"100 MB, and {bounds.MAX_REQUEST_ELEMENTS:,} elements",
        f"{bounds.MAX_CHANGING_ELEMENTS:,} where it changes something, but for groups that are "
        "deleted, or fetches, "
        f"{bounds.MAX_FOLLOWED_ELEMENTS:,} in a follower's fetch",
        f"| tagged fields of a header | {bounds.MAX_HEADER_TAGS:,} |",
        f"| a string | {(bounds.MAX_STRING_BYTES + 1) // KIB} KiB |",
        f"{dispatch.AT_ONCE_ELEMENTS:,} elements. A larger request is read in a thread, and served "
        f"{large_requests.THINGS_A_TURN} things a turn if it only asks, "
        f"{large_requests.FEW_A_TURN} of groups and settings "
        f"(these from {large_requests.BEGIN_WITH} on), with "
        f"{long_answers.MOST_ANSWER_BYTES // MIB} MiB of answers",
        f"listed {metadata.PARTITIONS_A_TURN:,} partitions a turn",
        f"planned {create_topics.TOPICS_A_TURN} a turn, "
        f"or {create_topics.REPLICAS_A_TURN:,} replicas",
        f"one that takes more than {deferred.QUICK_TURNS} turns",
        f"while {deferred.LONGEST_WAITING} more may wait",
        f"described transactions {describe_transactions.MOST:,} partitions",
        f"Groups are deleted {delete_groups.SLICE_GROUPS} a turn",
        f"| larger requests at once | {large_requests.LARGE_AT_ONCE} of each kind",
        "each up to {:,} elements, {:,}, {:,}, and above".format(*large_requests.SIZES),
        f"Who waits does so for {large_requests.TIMEOUT_MS // 1000} s at most",
        f"hold {PARTS[large_requests.WAITING_PART]} of `queued.max.request.bytes`",
        f"where a login is asked for: {PARTS[queued_bytes.STRANGERS_PART]}",
        f"and {queued_bytes.STRANGER_FREE_BYTES // KIB} KiB in any case",
        f"{connection.AHEAD_BYTES // KIB} KiB of a connection",
        f"clients with less than {PARTS[queued_bytes.WEIGHED_PART]} each",
        f"one read of each new connection, {connection.BORDER_READ_BYTES // KIB} KB",
        f"one at a time, {turns.SHARE_REQUESTS} or {turns.SHARE_S * 1000:g} ms in a round",
        f"| connections that are read in one turn | {watchdog.EVENTS_A_TURN}, of all",
        f"reads {watchdog.EVENTS_A_TURN} of the connections that have sent something",
        f"| {bounds.MAX_PRODUCED_BYTES // MIB} MB in all its batches",
        f"| {bounds.MAX_REWRITTEN_RECORDS:,} a batch |",
        f"{down_conversion.CONVERTED_BYTES // MIB} MB of all connections",
        f"and {fetch_sessions.MOST_OF_CONNECTION} of a connection, with which they end",
        f"{fetch_sessions.MOST_OF_CONSUMER:,} of one, {fetch_sessions.MOST_OF_CLIENT:,} of a "
        f"client, {fetch_sessions.MOST_OF_CONSUMERS:,} of all",
        f"{join.MAX_HANDED_OUT:,} ids that are handed out and not used",
        f"; {join.MAX_PROTOCOLS} assignors |",
        f"| {transactional_commits.MOST_STAGED:,} in a partition of `__consumer_offsets`",
        f"{client_quotas.MAX_COUNTERS:,}; {acl_authorizer.MAX_SENDERS:,}: the oldest, or all",
        f"{key_document.MAX_BYTES // MIB} MiB, {key_document.SILENCE_S:g} s of silence, "
        f"{key_document.FETCH_S:g} s in all",
        f"| scrapes of metrics | {metrics_server.MAX_CLIENTS} at once",
        f"{metrics_server.MAX_REQUEST_BYTES // KIB} KiB a request",
        f"but for {freed_memory.KEPT_BYTES // MIB} MB",
    ],
)
def test_a_bound_on_the_page_is_that_of_the_code(words: str) -> None:
    assert words in BOUNDS


def test_what_is_listed_in_equal_turns_is() -> None:
    """The page has one number for each of two kinds."""
    assert list_transactions.IDS_A_TURN == metadata.PARTITIONS_A_TURN
    assert "groups, all offsets of a group and producers 1,000;" in BOUNDS
    assert {
        list_groups.GROUPS_A_TURN,
        offset_fetch.OFFSETS_A_TURN,
        describe_producers.PRODUCERS_A_TURN,
    } == {1000}
