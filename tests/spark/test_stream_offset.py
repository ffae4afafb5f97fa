import json

import pytest

from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import at_least, find_behind, from_json, to_json

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_same_place_is_the_same_text_whatever_the_order_it_was_found_in() -> None:
    place = {TopicPartition("t", n): n for n in (10, 2, 0)} | {TopicPartition("a", 0): 5}
    text = json.dumps(to_json(place))
    assert text == '{"a": {"0": 5}, "t": {"0": 0, "2": 2, "10": 10}}'
    assert json.dumps(to_json(dict(reversed(place.items())))) == text


def test_a_place_comes_back_from_its_text() -> None:
    place = {T0: 3, T1: 2**40}
    assert from_json(json.loads(json.dumps(to_json(place)))) == place


@pytest.mark.parametrize(
    "place",
    [[], {"t": 5}, {"t": {"x": 5}}, {"t": {"-1": 5}}, {"t": {"0": "5"}}, {"t": {"0": True}}],
)
def test_what_is_no_place_is_refused(place: object) -> None:
    with pytest.raises(ValueError, match=r"object|t has"):
        from_json(place)


def test_behind_names_only_partitions_of_both_places() -> None:
    assert find_behind({T0: 1, T1: 5}, {T0: 2, TopicPartition("t", 2): 9}) == {T0: 1}


def test_at_least_lifts_what_is_below_the_floor() -> None:
    assert at_least({T0: 1, T1: 5}, {T0: 2, T1: 2, TopicPartition("t", 2): 9}) == {T0: 2, T1: 5}
