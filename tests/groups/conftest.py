"""All tests of groups check the states of members and shards."""

from tests.checked_states import checked_states

__all__ = ["checked_states"]
