"""Crash every workload at every byte.

python -m tests.crash             as `make interop` does, with the counts
python -m tests.crash --deep      more combinations of what a power loss may leave
python -m tests.crash truncation  those with this in their name
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.crash.exploration import Counts, CrashViolation, explore
from tests.crash.power_loss import DEEP, EACH_BYTE
from tests.crash.workloads import WORKLOADS


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when a crash was not survived."""
    is_deep = "--deep" in arguments
    wanted = [name for name in arguments if name != "--deep"]
    numbers = [
        number
        for number, workload in enumerate(WORKLOADS)
        if not wanted or any(name in workload.name for name in wanted)
    ]
    total, violations = Counts(), 0
    with ProcessPoolExecutor() as processes:
        for done in as_completed([processes.submit(_explored, n, is_deep) for n in numbers]):
            counts, text = done.result()
            print(text, flush=True)
            total.add(counts)
            violations += counts == Counts()
    print(f"{len(numbers)} workloads, {violations} violations: {total}")
    return 1 if violations else 0


def _explored(number: int, is_deep: bool) -> tuple[Counts, str]:
    """No counts at all: a violation, and the text tells of it."""
    workload, started = WORKLOADS[number], time.process_time()
    try:
        counts = explore(workload, DEEP if is_deep else EACH_BYTE)
    except CrashViolation as violation:
        return Counts(), f"VIOLATION\n{violation}\n"
    return counts, f"{workload.name}: {counts} ({time.process_time() - started:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
