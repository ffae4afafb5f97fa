"""What is told at the end: tables for people, JSON for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

import attrs

from protocol.topic_partition import TopicPartition
from tests.chaos.checker import Verdict
from tests.chaos.stock_group import StockRow

Span = tuple[TopicPartition, float, float]


@attrs.frozen
class Happened:
    """A fault, from its beginning to that of the next one; times in seconds."""

    name: str
    began: float
    ended: float
    leader_changes: int
    isr_shrinks: int
    longest_gap: float

    @property
    def bit(self) -> bool:
        """Whether anybody noticed."""
        return bool(self.leader_changes or self.isr_shrinks or self.longest_gap)


@attrs.define(eq=False)
class Report:
    """All of it."""

    seed: int
    seconds: float
    verdict: Verdict
    stock: Sequence[StockRow]
    happened: Sequence[Happened]
    gaps: Sequence[Span]
    leaderless: Sequence[Span]
    commits: int
    handed_out: int
    handed_out_again: int
    errors: dict[str, int]
    given_up: int

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "wrong": self.verdict.wrong,
            "producers": [attrs.asdict(each) for each in self.verdict.producers],
            "stock_consumers": [attrs.asdict(each) for each in self.stock],
            "commits": self.commits,
            "handed_out": self.handed_out,
            "handed_out_again": self.handed_out_again,
            "without_leader_s": _spread(self.leaderless),
            "without_acknowledgement_s": _spread(self.gaps),
            "faults": [attrs.asdict(each) | {"bit": each.bit} for each in self.happened],
            "error_lines": self.errors,
            "starts_without_zookeeper": self.given_up,
        }

    def lines(self) -> list[str]:
        """For people."""
        return [
            "",
            *table([attrs.asdict(each) for each in self.verdict.producers]),
            "",
            *table([attrs.asdict(each) for each in self.stock]),
            "",
            *table(self._faults()),
            "",
            f"commits {self.commits}; messages handed out {self.handed_out}, "
            f"{self.handed_out_again} of them again; starts without ZooKeeper {self.given_up}; "
            f"error lines {', '.join(f'{name} {n}' for name, n in self.errors.items())}",
            f"without a leader     {_words(self.leaderless)}",
            f"without an ack, 1 s+ {_words(self.gaps)}",
            "",
            *(f"WRONG  {sentence}" for sentence in self.verdict.wrong),
            f"seed {self.seed}: {'wrong' if self.verdict.wrong else 'all is well'}",
        ]

    def _faults(self) -> list[dict[str, Any]]:
        kinds: dict[str, list[Happened]] = defaultdict(list)
        for each in self.happened:
            kinds[each.name].append(each)
        return [
            {
                "fault": name,
                "times": len(cases),
                "bit": sum(each.bit for each in cases),
                "leader_changes": sum(each.leader_changes for each in cases),
                "isr_shrinks": sum(each.isr_shrinks for each in cases),
                "longest_gap_s": round(max(each.longest_gap for each in cases), 1),
            }
            for name, cases in sorted(kinds.items())
        ]


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Columns under their names."""
    if not rows:
        return []
    titles = [name.replace("_", " ") for name in rows[0]]
    cells = [titles, *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def _spread(spans: Sequence[Span]) -> dict[str, float]:
    lengths = [end - begin for _, begin, end in spans]
    if not lengths:
        return {"times": 0, "median": 0.0, "worst": 0.0}
    return {
        "times": len(lengths),
        "median": round(median(lengths), 2),
        "worst": round(max(lengths), 2),
    }


def _words(spans: Sequence[Span]) -> str:
    spread = _spread(spans)
    return (
        f"{spread['times']} times; median {spread['median']:.2f} s, worst {spread['worst']:.2f} s"
    )
