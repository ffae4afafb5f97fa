"""How much is done: counted in bytecodes, which no load on the machine changes.

Work takes some ten times as long while it is counted, so the guard of event loops leaves it out.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.stage import turn_guard


def bytecodes_of(work: Callable[[], object]) -> int:
    """How many bytecodes `work` runs in this thread, loops and comprehensions included."""
    number = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal number
        if event == "call":
            # From Python 3.12 on opcodes are told only where the frame has its function already.
            frame.f_trace = trace
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            number += 1
        return trace

    # A collection in between would run what others have left behind.
    before = sys.gettrace()
    gc.disable()
    with turn_guard.uncounted():
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
            gc.enable()
    return number
