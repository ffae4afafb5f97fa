"""All tests of the controller check its state."""

from tests.stage.checked_states import checked_states

__all__ = ["checked_states"]
