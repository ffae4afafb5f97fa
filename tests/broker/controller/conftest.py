"""All tests of the controller check its state."""

from tests.checked_states import checked_states

__all__ = ["checked_states"]
