"""Offsets that will be lost soon, and records that will be: what `kgroup at-risk` says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clients.groups.group_view import WHY_UNOWNED, counted_lag, duration
from clients.groups.lag import ADVICE, REASONS, Position

Item = Mapping[str, Any]

EXPIRES = "offset-expires"
DELETED = "records-deleted"
OVERTAKEN = "overtaken"
BEYOND = Position.BEYOND_LOG_END.value
UNOWNED = "no-owner"


def find_risks(items: Sequence[Item], within_ms: int) -> list[dict[str, Any]]:
    """Return a row for each risk of the rows of `describe`, the nearest first.

    `in_ms` is the time until it happens; where a committed offset is out of range it is 0.
    """
    risks = []
    for item in items:
        if item.get("topic") is None:
            continue
        if item["position"] == Position.BELOW_LOG_START.value:
            risks.append(_risk(item, OVERTAKEN, 0))
        elif item["position"] == BEYOND:
            risks.append(_risk(item, BEYOND, 0))
        elif item["deleted_in_ms"] is not None and item["deleted_in_ms"] <= within_ms:
            risks.append(_risk(item, DELETED, item["deleted_in_ms"]))
        elif _is_skipped_by_latest(item):
            risks.append(_risk(item, UNOWNED, 0))
        if item["expires_in_ms"] is not None and item["expires_in_ms"] <= within_ms:
            risks.append(_risk(item, EXPIRES, item["expires_in_ms"]))
    return sorted(risks, key=lambda risk: risk["in_ms"])


def _is_skipped_by_latest(item: Item) -> bool:
    """Return whether a partition that nobody owns, and without a committed offset, has records."""
    if not item["unowned"] or item["current_offset"] is not None:
        return False
    return bool((item["log_end_offset"] or 0) > (item["log_start_offset"] or 0))


def count_unjudged(items: Sequence[Item]) -> int:
    """Return how many partitions have an owner and records, but no commit to judge."""
    return sum(
        item["current_offset"] is None and counted_lag(item) > 0
        for item in items
        if item.get("topic") is not None
    )


def _risk(item: Item, risk: str, in_ms: int) -> dict[str, Any]:
    names = ("group", "topic", "partition", "current_offset", "lag")
    # What is due may wait for the next check of a coordinator or a log.
    return {name: item[name] for name in names} | {"risk": risk, "in_ms": max(in_ms, 0)}


def judge_risks(risks: Sequence[Item], within_ms: int) -> str:
    """Say what is lost when, the nearest first, and what to do about it."""
    if not risks:
        return f"nothing is lost within {duration(within_ms)}"
    advice = {
        OVERTAKEN: f"{REASONS[Position.BELOW_LOG_START]}: raise retention.ms or retention.bytes",
        BEYOND: f"{REASONS[Position.BEYOND_LOG_END]}: {ADVICE[Position.BEYOND_LOG_END]}",
        DELETED: "consume faster, or raise retention.ms of the topic",
        UNOWNED: WHY_UNOWNED,
        EXPIRES: "start a member, commit again, or raise offsets.retention.minutes",
    }
    sentences = []
    for risk in dict.fromkeys(item["risk"] for item in risks):
        same = [item for item in risks if item["risk"] == risk]
        first = same[0]
        where = f"{first['group']} on {first['topic']}-{first['partition']}"
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        when = "now" if risk in (OVERTAKEN, BEYOND, UNOWNED) else f"in {duration(first['in_ms'])}"
        sentences.append(f"{risk} {when}: {where}{more}: {advice[risk]}")
    return "; ".join(sentences)
