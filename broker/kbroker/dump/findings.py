"""What `kbroker dump` finds wrong, and Kafka's words for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import attrs
import click

from broker.kbroker.log.indexes import JudgedTime


@attrs.define(eq=False)
class Findings:
    """What is told when all files have been shown, by the file's path; in the order of the file."""

    index_mismatches: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    times: dict[str, list[JudgedTime]] = attrs.field(factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    errors: int = 0

    @property
    def failed(self) -> bool:
        """Whether anything is wrong. Gaps are not: compaction leaves them."""
        return bool(self.index_mismatches or self.times or self.errors)

    def error(self, path: str, what: str) -> None:
        """Tell at once what keeps a file from being shown."""
        self.errors += 1
        sys.stdout.flush()
        click.echo(f"error: {path}: {what}", err=True)

    def lines(self) -> Iterator[str]:
        """All that was found, as Kafka says it."""
        for path, mismatches in self.index_mismatches.items():
            yield f"Mismatches in :{path}"
            for index_offset, log_offset in reversed(mismatches):
                yield f"  Index offset: {index_offset}, log offset: {log_offset}"
        yield from self._time_lines()
        for path, gaps in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            for first, second in reversed(gaps):
                yield f"  {first} is followed by {second}"

    def _time_lines(self) -> Iterator[str]:
        def those(holds: Callable[[JudgedTime], bool]) -> Iterator[tuple[str, list[JudgedTime]]]:
            for path, times in self.times.items():
                if chosen := [each for each in times if holds(each)]:
                    yield path, chosen

        for path, times in those(lambda each: each.log_timestamp is not None):
            yield f"Found timestamp mismatch in :{path}"
            for each in times:
                yield (
                    f"  Index timestamp: {each.entry.timestamp},"
                    f" log timestamp: {each.log_timestamp}"
                )
        for path, times in those(lambda each: each.earlier is not None):
            yield f"Found out of order timestamp in :{path}"
            for each in times:
                yield (
                    f"  Index timestamp: {each.entry.timestamp},"
                    f" Previously indexed timestamp: {each.earlier}"
                )
        for _, times in those(lambda each: each.found_offset is not None):
            yield "The following indexed offsets are not found in the log."
            for each in times:
                yield (
                    f"Indexed offset: {each.entry.offset}, found log offset: {each.found_offset}"
                )
