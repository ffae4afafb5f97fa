"""Assignors by their names, and the protocols that they agree on."""

import pytest

from groups.assignors.assignor import RebalanceProtocol
from groups.assignors.assignor_table import ASSIGNORS, choose_protocol, find_assignor
from groups.assignors.claims import Claim


def test_assignors_have_the_names_of_kafka() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert all(find_assignor(name).name == name for name in ASSIGNORS)


def test_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'stick': unknown; choose one of range, roundrobin, st"):
        find_assignor("stick")


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_cooperative_sticky_beside_another_assignor_is_eager(name: str) -> None:
    both = [find_assignor("cooperative-sticky"), find_assignor(name)]
    assert choose_protocol(both) is RebalanceProtocol.EAGER


def test_cooperative_sticky_alone_is_cooperative() -> None:
    assert choose_protocol([find_assignor("cooperative-sticky")]) is RebalanceProtocol.COOPERATIVE


def test_member_without_assignors_has_no_protocol() -> None:
    with pytest.raises(ValueError, match="assignors: none"):
        choose_protocol([])


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_assignor_that_looks_at_topics_alone_has_no_user_data(name: str) -> None:
    assert find_assignor(name).user_data(Claim()) is None


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_group_without_members_gets_an_empty_assignment(name: str) -> None:
    assert find_assignor(name).assign({"t": 3}, []) == {}
