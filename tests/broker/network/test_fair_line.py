"""Turns in a line: over clients, and for each over its connections."""

from __future__ import annotations

import attrs
import pytest

from broker.network.fair_line import FairLine, Owner, Place, owner_of
from broker.network.request_context import Origin
from broker.network.session import Principal


@attrs.define(eq=False)
class Those:
    """Those who have come to a line, and the names of those who have a place, as they got it."""

    line: FairLine
    inside: list[str] = attrs.field(factory=list)
    refused: list[str] = attrs.field(factory=list)
    places: dict[str, Place] = attrs.field(factory=dict)

    def come(self, *names: str, size: int = 0) -> None:
        """Each name has a client, the number of a connection, and what tells it from others."""
        for name in names:
            client, connection = name[0], int(name[1])
            self.places[name] = self.line.line_up(
                Owner(client, connection),
                size,
                lambda name=name: self.inside.append(name),
                lambda name=name: self.refused.append(name),
            )

    def serve(self) -> None:
        """Serve one after the other, until nobody is left."""
        for name in self.inside:
            self.places[name].leave()


def test_up_to_the_places_all_have_one_at_once() -> None:
    those = Those(FairLine(2, 2))
    those.come("a1", "a2", "a3")
    assert those.inside == ["a1", "a2"]
    those.places["a2"].leave()
    assert those.inside == ["a1", "a2", "a3"]


@pytest.mark.fault("security-5")
def test_who_comes_late_waits_for_one_of_each_other_client() -> None:
    those = Those(FairLine(1, 1))
    those.come(*(f"a{n}" for n in range(9)), "b1", "b2", "c1")
    those.serve()
    assert those.inside[:6] == ["a0", "a1", "b1", "c1", "a2", "b2"]
    assert those.inside[6:] == [f"a{n}" for n in range(3, 9)]


@pytest.mark.fault("security-5")
def test_a_connection_waits_for_one_request_of_each_other_of_its_client() -> None:
    those = Those(FairLine(1, 1))
    those.come("a1", "a1x", "a1y", "a1z", "a2", "a3")
    those.serve()
    assert those.inside == ["a1", "a1x", "a2", "a3", "a1y", "a1z"]


@pytest.mark.fault("security-5")
def test_one_client_has_no_more_than_its_places_though_others_are_free() -> None:
    those = Those(FairLine(2, 1))
    those.come("a1", "a2")
    assert those.inside == ["a1"]
    those.come("b1")
    assert those.inside == ["a1", "b1"]
    those.places["a1"].leave()
    assert those.inside == ["a1", "b1", "a2"]


@pytest.mark.fault("security-5")
def test_there_are_never_more_inside_than_places() -> None:
    those = Those(FairLine(2, 2))
    those.come("a1", "b1", "c1", "d1")
    assert those.inside == ["a1", "b1"]


def test_who_waits_no_longer_has_no_turn_and_holds_nothing() -> None:
    those = Those(FairLine(1, 1))
    those.come("a1", "b1", "c1", size=10)
    assert those.line.waiting_bytes == 20
    those.places["b1"].leave()
    those.places["b1"].leave()
    assert (those.line.waiting, those.line.waiting_bytes) == (1, 10)
    those.places["a1"].leave()
    assert those.inside == ["a1", "c1"]


def test_a_place_is_left_once() -> None:
    those = Those(FairLine(1, 1))
    those.come("a1", "b1", "c1")
    those.places["a1"].leave()
    those.places["a1"].leave()
    assert those.inside == ["a1", "b1"]


@pytest.mark.fault("security-3")
def test_beyond_the_bytes_the_largest_of_the_greediest_client_is_refused() -> None:
    those = Those(FairLine(1, 1, most_bytes=100))
    those.come("x1")
    those.come("a1", size=30)
    those.come("a2", size=40)
    those.come("b1", size=50)
    assert those.refused == ["a2"]
    assert (those.line.waiting, those.line.waiting_bytes) == (2, 80)

    those.places["a2"].leave()
    those.places["x1"].leave()
    those.serve()
    assert those.inside == ["x1", "a1", "b1"]


def test_one_that_is_larger_than_the_bound_may_wait_alone() -> None:
    those = Those(FairLine(1, 1, most_bytes=100))
    those.come("x1")
    those.come("a1", size=1000)
    assert those.refused == []
    those.places["x1"].leave()
    assert those.inside == ["x1", "a1"]


@pytest.mark.parametrize(
    ("origin", "owner"),
    [
        (Origin("L", "10.0.0.1:5000", 7), Owner("10.0.0.1", 7)),
        (Origin("L", "10.0.0.1:5001", 8), Owner("10.0.0.1", 8)),
        (Origin("L", "10.0.0.1:5002", 9, Principal("User", "alice")), Owner("User:alice", 9)),
        (Origin("L", "10.0.0.2:5003", 10, Principal("User", "alice")), Owner("User:alice", 10)),
    ],
)
def test_a_client_is_a_user_or_an_address_where_nobody_logs_in(
    origin: Origin, owner: Owner
) -> None:
    assert owner_of(origin) == owner


@pytest.mark.fault("strangers-8")
def test_who_steps_aside_gives_its_place_to_another_client_and_to_none_of_its_own() -> None:
    those = Those(FairLine(1, 1))
    those.come("a1", "a2", "b1", "c1")
    those.places["a1"].step_aside()
    assert those.inside == ["a1", "b1"]
    those.places["a1"].step_aside()
    assert those.inside == ["a1", "b1"]
    those.places["b1"].leave()
    assert those.inside == ["a1", "b1", "c1"]
    those.places["c1"].leave()
    assert those.inside == ["a1", "b1", "c1"]
    those.places["a1"].leave()
    those.places["a1"].leave()
    assert those.inside == ["a1", "b1", "c1", "a2"]
    those.come("d1")
    assert those.inside == ["a1", "b1", "c1", "a2"]


@pytest.mark.fault("strangers-6")
def test_who_may_not_enter_keeps_nobody_waiting_and_goes_on_when_it_may() -> None:
    outside = {"a"}
    those = Those(FairLine(1, 1, may_enter=lambda client: client not in outside))
    those.come("a1", "b1", "c1")
    assert those.inside == ["b1"]
    those.serve()
    assert those.inside == ["b1", "c1"]
    those.line.go_on()
    assert those.inside == ["b1", "c1"]
    outside.clear()
    those.line.go_on()
    assert those.inside == ["b1", "c1", "a1"]
