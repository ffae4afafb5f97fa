"""Remedies in replication: followers, fetch sessions, the purgatory."""

from tests.mutants.remedy import Remedy

_B = "tests/broker/"
_R = "tests/broker/replication/"
_FETCHERS = f"{_R}test_replica_fetchers.py {_R}test_fetcher_connections.py"
_WAITS = f"{_R}test_partition_waits.py"

TESTS: dict[str, str] = {
    "broker.replication.replica_fetchers": _FETCHERS,
    "broker.replication.leader_fetcher": _FETCHERS,
    "broker.replication.fetch_sessions": (
        f"{_R}test_fetch_sessions.py {_R}test_session_reader.py {_R}test_costs_of_fetches.py"
    ),
    "broker.handlers.fetch": f"{_B}test_fetch.py {_R}test_costs_of_fetches.py {_WAITS}",
    "broker.replication.isr": f"{_R}test_isr.py {_R}partition",
    "broker.replication.follower_progress": (
        f"{_R}test_costs_of_fetches.py {_R}test_replica_manager.py"
    ),
    "broker.replication.partition": f"{_R}test_costs_of_fetches.py {_R}partition",
    "broker.replication.partition_waits": _WAITS,
    "broker.network.purgatory": "tests/broker/network/test_purgatory.py",
    "broker.replication.verification": f"{_R}test_verification.py",
    "broker.replication.replica_manager": f"{_R}test_replica_manager.py {_B}test_fetch.py {_WAITS}",
    "core_log.log": "tests/core_log/log",
    "core_log.segments.segment": "tests/core_log/log",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "P7",
        "replicated batches are not held to segment.bytes",
        "core_log.log:Log.append_follower",
        "self.guard.check()",
        "self.check_fits(len(run.records))",
    ),
    Remedy(
        "P7",
        "damage met at a cut goes with it",
        "core_log.segments.segment:Segment._last_below",
        "contextlib.suppress(CorruptRecord)",
        "contextlib.nullcontext()",
    ),
    Remedy(
        "P7",
        "a partition that failed is tried again",
        "broker.replication.leader_fetcher:LeaderFetcher._delay",
        "monotonic_ms + replica.delay_ms",
        "inf",
    ),
    Remedy(
        "P7",
        "what cannot be fetched is known by its trouble",
        "broker.replication.leader_fetcher:LeaderFetcher._delay",
        "replica.trouble = trouble",
        "pass",
    ),
    Remedy(
        "L3",
        "what nobody expects in one partition delays that one",
        "broker.replication.replica_fetchers:_FetchLoop._append",
        "fetcher.fail(replica, error, _monotonic_ms())",
        "raise",
    ),
    Remedy(
        "L3",
        "a cut that fails delays its partition",
        "broker.replication.replica_fetchers:_FetchLoop._change_log",
        "self.fetcher.fail(change.replica, error, _monotonic_ms())",
        "raise",
        f"{_R}test_followers_truncation.py",
    ),
    Remedy(
        "P13",
        "a new leader does not tell its own watermark",
        "broker.replication.replica_manager:ReplicaManager.read",
        "bounds = UNKNOWN_OFFSET, UNKNOWN_OFFSET",
        "pass",
    ),
    Remedy(
        "P8",
        "producers wait for an offset",
        "broker.network.purgatory:Purgatory.advance",
        "bisect_right(waiting, _rank(offset, inf), key=_rank_of)",
        "len(waiting)",
        f"tests/broker/network/test_purgatory.py {_WAITS}",
    ),
    Remedy(
        "P25",
        "after a flush it is asked again who leads",
        "broker.replication.replica_fetchers:_FetchLoop._append_records",
        "not self.fetcher.is_current(replica)",
        "False",
        _FETCHERS,
    ),
    Remedy(
        "P25",
        "when a log's turn has come it is asked again whom it follows",
        "core_log.log_work:LogWork.lend_if",
        "not is_wanted()",
        "False",
        f"{_R}test_followers_truncation.py",
    ),
    Remedy(
        "P8",
        "consumers wait for the watermark",
        "broker.handlers.fetch:_waits_under",
        "END if reader.is_follower else WATERMARK",
        "END",
    ),
    Remedy(
        "P8",
        "consumers' sessions are not woken by appends",
        "broker.replication.partition_waits:PartitionWaits.wake_at_end",
        "session.is_follower",
        "True",
    ),
    Remedy(
        "P5",
        "a partition with nothing more to give loses its mark",
        "broker.replication.fetch_sessions:FetchSession.note",
        "has_records or not has_more",
        "has_records",
    ),
    Remedy(
        "P5",
        "what has more to give keeps its mark",
        "broker.replication.fetch_sessions:FetchSession.asks_below",
        "known is None or known.request.fetch_offset < end_offset",
        "known is None",
        f"{_B}test_fetch.py {_WAITS} {_R}test_fetch_rounds.py",
    ),
    Remedy(
        "P5",
        "what moves marks the sessions that have it",
        "broker.replication.fetch_sessions:FetchSessions.mark",
        "session.marked[tp] = None",
        "pass",
    ),
    Remedy(
        "P5",
        "a follower at rest is caught up while its session fetches",
        "broker.replication.isr:Follower.caught_up_ms",
        "max(self._caught_up_ms, self.at_rest.ms if self.at_rest else LONG_AGO_MS)",
        "self._caught_up_ms",
    ),
    Remedy(
        "P5",
        "rest ends when the leader's log grows",
        "broker.replication.partition:Partition.append",
        "follower.end_rest()",
        "pass",
        f"{_R}test_fetch_rounds.py",
    ),
    Remedy(
        "P5",
        "followers that are level are not looked at again",
        "broker.replication.follower_progress:FollowerProgress.shrink_isrs",
        "partition is None or not partition.is_leader or partition.is_isr_caught_up",
        "partition is None or not partition.is_leader",
    ),
    Remedy(
        "P5",
        "a follower of which the high watermark waits is looked at with each fetch",
        "broker.replication.partition:Partition.needs_nothing_from",
        "replica in self.isr and self.high_watermark >= self.log.log_end_offset",
        "True",
        f"{_R}test_fetch_rounds.py",
    ),
    # --- transactions are opened by who is in them ------------------------------------------------
    Remedy(
        "P36",
        "a marker ends the verdict on its producer",
        "broker.replication.verification:Verification.end",
        "self._verdicts.pop((topic_partition, producer_id), None)",
        "pass",
    ),
    Remedy(
        "P36",
        "a verdict is for one epoch of its producer",
        "broker.replication.verification:Verification.require",
        "verdict is None or verdict.epoch != header.producer_epoch",
        "verdict is None",
    ),
    Remedy(
        "P36",
        "a verdict is for one leader epoch",
        "broker.replication.verification:Verification.require",
        "verdict.error is None or verdict.leader_epoch != partition.leader_epoch",
        "verdict.error is None",
    ),
    Remedy(
        "P36",
        "a refusal is asked about again",
        "broker.replication.verification:Verification.verdict_on",
        "verdict.error is None or verdict.error is ErrorCode.NONE",
        "True",
    ),
    Remedy(
        "P36",
        "a second batch waits for the first one that was not allowed",
        "broker.replication.verification:Verification.require",
        "is_unknown and header.base_sequence > verdict.lowest_sequence",
        "False",
    ),
)
