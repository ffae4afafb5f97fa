"""What the transactors in Python share: calls are read, made, and answered.

A line of standard input is a call, its words apart by tabs; the line written for it is "ok" and the
result, or "error", its kind and its text. The calls are those of tests/interop/transactor.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

Call = Callable[..., Sequence[str] | None]

FENCED, TIMEOUT, ILLEGAL, ABORTABLE, OTHER = "fenced", "timeout", "illegal", "abortable", "other"


def serve(calls: Mapping[str, Call], kind_of: Callable[[Exception], str]) -> None:
    """Make the calls of standard input, one after the other, until it ends."""
    for line in sys.stdin:
        verb, *words = line.rstrip("\n").split("\t")
        try:
            answer = ["ok", *(calls[verb](*words) or ())]
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            answer = ["error", kind_of(error), text]
        print("\t".join(answer), flush=True)


def render(partition: int, offset: int, value: bytes | None) -> str:
    """Return a record as a word."""
    return f"{partition}/{offset}/{(value or b'').decode()}"


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings that are given as name=value."""
    return dict(pair.split("=", 1) for pair in pairs)
