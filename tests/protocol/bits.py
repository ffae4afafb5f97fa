"""Values of each type that messages have."""

from __future__ import annotations

from protocol.wire import INT8, INT16, INT32, INT64

BITS = {INT8: 7, INT16: 15, INT32: 31, INT64: 63}
