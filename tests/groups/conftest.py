"""All tests of groups check the states of members and shards."""

from tests.stage.checked_states import checked_states

__all__ = ["checked_states"]
