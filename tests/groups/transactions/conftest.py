"""Check the states of transactional ids after every step."""

from tests.stage.checked_states import checked_states

__all__ = ["checked_states"]
