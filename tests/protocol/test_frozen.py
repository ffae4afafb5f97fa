"""Classes of values behave as those of `attrs.frozen` do."""

from __future__ import annotations

import pickle

import attrs
import pytest

from protocol.frozen import frozen


@frozen
class Point:
    x: int
    _y: int = 0
    name: str = attrs.field(default="", eq=False)
    secret: str = attrs.field(default="s", repr=False, kw_only=True)


@frozen
class PointInSpace(Point):
    z: int = 0


@frozen(kw_only=True)
class Named:
    name: str


@frozen
class Nothing:
    pass


@frozen
class SameAsAll:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "me"


def test_values_are_equal_if_their_fields_are() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != (1, 2, "s")
    assert Nothing() == Nothing()
    assert {Point(1): "a", Nothing(): "b", Named(name="n"): "c"} == {
        Named(name="n"): "c",
        Nothing(): "b",
        Point(1): "a",
    }


def test_a_field_may_not_count() -> None:
    assert Point(1, name="a") == Point(1, name="b")
    assert hash(Point(1, name="a")) == hash(Point(1, name="b"))
    assert Point(1, secret="a") != Point(1, secret="b")


def test_a_value_is_not_equal_to_one_of_another_class() -> None:
    assert Point(1) != PointInSpace(1)
    assert PointInSpace(1) != Point(1)
    assert PointInSpace(1, z=1) != PointInSpace(1, z=2)
    assert Named(name="x") != attrs.make_class("Named", ["name"])("x")
    assert len({Nothing(), attrs.evolve(Nothing()), Point(1), PointInSpace(1)}) == 3


def test_a_value_is_shown_without_its_secrets() -> None:
    assert repr(Point(1, 2, "n", secret="hidden")) == "Point(x=1, _y=2, name='n')"
    assert repr(PointInSpace(1, z=3)) == "PointInSpace(x=1, _y=0, name='', z=3)"
    assert repr(Nothing()) == "Nothing()"


def test_a_value_does_not_change() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Point(1).other = 2  # type: ignore[attr-defined]
    assert attrs.evolve(Point(1, 2), x=3) == Point(3, 2)


def test_a_value_with_a_field_that_is_no_key_is_none_either() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Named(name=["n"]))  # type: ignore[arg-type]


def test_a_class_keeps_its_own_methods() -> None:
    assert SameAsAll(1) == SameAsAll(2)
    assert hash(SameAsAll(1)) == 7
    assert repr(SameAsAll(1)) == "me"


def test_a_value_survives_a_pickle() -> None:
    value = PointInSpace(1, 2, "n", secret="hidden", z=3)
    assert pickle.loads(pickle.dumps(value)) == value
