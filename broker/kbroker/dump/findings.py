"""`kbroker dump` collects the defects of files and reports them in Kafka's words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import attrs

from broker.kbroker.log.indexes import CheckedTime
from clients.command_line.printing import say


@attrs.define(eq=False)
class Findings:
    """Defects by the path of their file, in the file's order; reported after all files.

    `index_mismatches`: offset in the index and in the log. `times`: entries of a time index that
    are not correct. `gaps`: offsets of two records that follow each other.
    """

    index_mismatches: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    times: dict[str, list[CheckedTime]] = attrs.field(factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    error_count: int = 0

    @property
    def has_failures(self) -> bool:
        """True if a file is damaged. Gaps do not count: compaction leaves them."""
        return bool(self.index_mismatches or self.times or self.error_count)

    def report_error(self, path: str, message: str) -> None:
        """Print at once why a file, or part of it, cannot be dumped."""
        self.error_count += 1

        # The lines of the file come before the error.
        sys.stdout.flush()
        say(f"error: {path}: {message}", err=True)

    def lines(self) -> Iterator[str]:
        """Yield the report in the words of Kafka's tool."""
        # Kafka's tool puts each mismatch, and each gap, in front of the earlier ones.
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
        Selection = Iterator[tuple[str, list[CheckedTime]]]

        def select(has_defect: Callable[[CheckedTime], bool]) -> Selection:
            for path, times in self.times.items():
                if selected := [time for time in times if has_defect(time)]:
                    yield path, selected

        # An entry's time is not the latest of its batch.
        for path, times in select(lambda time: time.log_timestamp is not None):
            yield f"Found timestamp mismatch in :{path}"
            for time in times:
                yield (
                    f"  Index timestamp: {time.entry.timestamp},"
                    f" log timestamp: {time.log_timestamp}"
                )

        # Times do not grow.
        for path, times in select(lambda time: time.previous_timestamp is not None):
            yield f"Found out of order timestamp in :{path}"
            for time in times:
                yield (
                    f"  Index timestamp: {time.entry.timestamp},"
                    f" Previously indexed timestamp: {time.previous_timestamp}"
                )

        # No batch has the offset. Kafka's tool does not name the file here.
        for _, times in select(lambda time: time.log_offset is not None):
            yield "The following indexed offsets are not found in the log."
            for time in times:
                yield f"Indexed offset: {time.entry.offset}, found log offset: {time.log_offset}"
