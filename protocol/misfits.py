"""Say which value of a message does not fit its field, when it could not be encoded."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from protocol.text import explain_unsendable
from protocol.wire import STRING, Array, WireType, fields

_MAX_SHOWN = 60
"""Characters of a value that an error shows, at most."""


def explain_misfit(message: Any, version: int, path: str = "") -> str | None:
    """Name the first field whose value has another type or is out of range; None: there is none.

    `path` has the names of the fields around it, as "topics[0].".
    """
    for name, field in fields(type(message), version):
        value = getattr(message, name)
        if value is None and field.may_be_null(version):
            continue
        reason = _explain(f"{path}{name}", value, field.type, version)
        if reason is not None:
            return reason
    return None


def _explain(at: str, value: Any, kind: Any, version: int) -> str | None:
    if isinstance(kind, Array):
        return _explain_array(at, value, kind, version)
    if not isinstance(kind, WireType):
        if isinstance(value, kind):
            return explain_misfit(value, version, f"{at}.")
        # What is encoded already fits.
        return None if hasattr(value, "body") else f"{at} is {_shown(value)}, no {kind.__name__}"

    if kind is STRING:
        if not isinstance(value, str):
            return f"{at} is {_shown(value)}, no str"
        unsendable = explain_unsendable(value)
        return None if unsendable is None else f"{at} {_shown(value)} {unsendable}"
    if not kind.code:
        # Records may be a range of a file, which has a size.
        fits = isinstance(value, bytes | bytearray | memoryview) or hasattr(value, "size")
        return None if fits else f"{at} is {_shown(value)}, no bytes"
    try:
        struct.pack(f">{kind.code}", value)
    except (struct.error, TypeError):
        return f"{at} is {_shown(value)}, no {kind.name}"
    return None


def _explain_array(at: str, value: Any, kind: Array, version: int) -> str | None:
    if hasattr(value, "leave_holes"):
        # Its elements are encoded already.
        return None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return f"{at} is {_shown(value)}, no list"
    reasons = (_explain(f"{at}[{n}]", each, kind.of, version) for n, each in enumerate(value))
    return next((reason for reason in reasons if reason is not None), None)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
