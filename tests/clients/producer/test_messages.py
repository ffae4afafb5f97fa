"""The arguments of `send`, taken apart into messages."""

from typing import Any

import pytest

from clients.producer.messages import KeyedMessage, ProducerData, keyed_messages


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ([b"a", b"b"], (b"a", b"b")),
        ((b"a",), (b"a",)),
        (iter([b"a", b"b"]), (b"a", b"b")),
        (b"ab", (b"ab",)),
        ("ab", ("ab",)),
        ({"a": 1}, ({"a": 1},)),
        (None, (None,)),
        ([], ()),
    ],
)
def test_sequence_is_many_values_and_all_else_is_one(data: Any, values: tuple[Any, ...]) -> None:
    assert ProducerData("t", None, data).data == values


def test_key_may_be_left_out() -> None:
    assert ProducerData("t", [b"a"]) == ProducerData("t", None, [b"a"])
    assert ProducerData("t", data=b"a") == ProducerData("t", None, b"a")


def test_each_value_is_a_message_under_its_datas_key_in_order() -> None:
    given: list[ProducerData | KeyedMessage] = [
        ProducerData("t", 1, [b"a", b"b"]),
        KeyedMessage("u", 2, b"c"),
    ]
    expected = [KeyedMessage("t", 1, b"a"), KeyedMessage("t", 1, b"b"), KeyedMessage("u", 2, b"c")]
    assert keyed_messages(given) == expected


def test_partition_key_takes_the_keys_place_and_a_falsy_one_counts() -> None:
    assert KeyedMessage("t", "k", b"", part_key=0).partition_key == 0
    assert KeyedMessage("t", "k", b"").partition_key == "k"


NAMELESS: Any = None


@pytest.mark.parametrize("wrong", [[b"a"], [("t", b"a")], ProducerData(NAMELESS, None, b"")])
def test_what_is_no_message_is_refused_by_its_type(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        keyed_messages(wrong)
