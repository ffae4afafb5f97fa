"""All assignors, by the names under which members offer them to each other."""

from __future__ import annotations

from collections.abc import Sequence

from groups.assignors.assignor import Assignor, RebalanceProtocol, make_no_user_data
from groups.assignors.claims import encode_cooperative_data, encode_sticky_data
from groups.assignors.range import assign_range
from groups.assignors.round_robin import assign_round_robin
from groups.assignors.sticky import assign_cooperative_sticky, assign_sticky

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range, make_no_user_data),
        Assignor("roundrobin", assign_round_robin, make_no_user_data),
        Assignor("sticky", assign_sticky, encode_sticky_data),
        Assignor(
            "cooperative-sticky",
            assign_cooperative_sticky,
            encode_cooperative_data,
            (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE),
        ),
    )
}


def find_assignor(name: str) -> Assignor:
    """Return the assignor with this name. Raises ValueError, with the names that exist."""
    assignor = ASSIGNORS.get(name)
    if assignor is None:
        raise ValueError(f"assignor {name!r}: unknown; choose one of {', '.join(ASSIGNORS)}")
    return assignor


def choose_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the highest protocol that all assignors of a member support.

    A group moves from an eager assignor to a cooperative one while members offer both, so it stays
    eager until the last eager assignor is gone. Raises ValueError without assignors.
    """
    if not assignors:
        raise ValueError("assignors: none; a member needs at least one")
    common = set.intersection(*(set(assignor.protocols) for assignor in assignors))
    return max(common)
