"""The version of this software: of its packages, of its commands, and on the wire."""

from importlib.util import find_spec
from typing import Final

__version__ = "0.1.0"


def _is_compiled() -> bool:
    """Return whether the hot loops are compiled: the records' walk stands for all of them."""
    spec = find_spec("protocol.records.record_walk")
    assert spec is not None
    assert spec.origin is not None
    return not spec.origin.endswith(".py")


COMPILED: Final = _is_compiled()
"""True if this is the compiled form of this software (building/compiled.py)."""
