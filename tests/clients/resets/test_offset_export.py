"""Offsets to text and back."""

import json

import attrs
import pytest

from clients.command_line.output import Listing, envelope
from clients.resets.offset_export import COLUMNS, KIND, ExportedOffset, read_export, zk_lines
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("flights", 0)
IN_ZOOKEEPER = ExportedOffset("g", T0, "zookeeper", OffsetAndMetadata(42))
IN_KAFKA = ExportedOffset("g", T0, "kafka", OffsetAndMetadata(2**40, "note", 7))
WITHOUT_EPOCH = ExportedOffset("g", T0, "kafka", OffsetAndMetadata(2**40, "note"))


def item(**changed: object) -> str:
    """Return an export of one item, with changes."""
    text = envelope(Listing(KIND, COLUMNS, [{**IN_ZOOKEEPER.item, **changed}]))
    assert isinstance(text, str)
    return text


@pytest.mark.fault("strangers-46")
def test_what_is_exported_as_json_is_read_back_but_for_what_another_cluster_takes_amiss() -> None:
    exported = [IN_ZOOKEEPER, IN_KAFKA]
    text = envelope(Listing(KIND, COLUMNS, [offset.item for offset in exported]))
    assert json.loads(text)["items"][1]["leader_epoch"] == 7
    assert read_export(text) == ([IN_ZOOKEEPER, WITHOUT_EPOCH], [])


def test_lines_are_those_of_exportzkoffsets_and_are_read_back() -> None:
    text = zk_lines([IN_ZOOKEEPER])
    assert text == "/consumers/g/offsets/flights/0:42\n"
    assert read_export(text + "\n") == ([IN_ZOOKEEPER], [])


def test_another_store_takes_what_one_store_held() -> None:
    (offset,), _ = read_export(zk_lines([IN_ZOOKEEPER]), "kafka")
    assert offset.store == "kafka"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/consumers/g/offsets/flights/0:forty-two", "offset 'forty-two' is not a number"),
        ("/consumers/g/offsets/flights/0:", "offset '' is not a number"),
        ("/consumers/g/offsets/flights/0:-1", "offset '-1' is not a number"),
        ("/consumers/g/offsets/flights/0:٤٢", "offset '٤٢' is not a number"),
        ("/consumers/g/offsets/flights/1-0:42", "partition '1-0' is not a number"),
        ("/consumers/g/offsets/flights/2147483648:42", "partition 2147483648 is not a number"),
        ("/consumers/g/offsets/flights/0:9223372036854775808", "offset 9223372036854775808 is"),
        ("/consumers/../offsets/flights/0:42", "group '..' is not a name"),
        ("hello", "'hello' is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"),
    ],
)
def test_a_line_that_is_no_offset_is_named_and_never_taken_for_zero(line: str, reason: str) -> None:
    offsets, (fault,) = read_export(f"{zk_lines([IN_ZOOKEEPER])}{line}\n")
    assert offsets == [IN_ZOOKEEPER]
    assert fault.what == "line 2"
    assert fault.message.startswith(reason)


@pytest.mark.parametrize(
    "changed",
    [
        {"offset": "42"},
        {"offset": True},
        {"offset": None},
        {"offset": 4.2},
        {"partition": 2**31},
        {"group": "a/b"},
        {"group": 7, "store": "kafka"},
        {"topic": "a/b", "store": "kafka"},
        {"topic": ""},
        {"store": "etcd"},
    ],
)
def test_an_item_that_is_no_offset_is_named(changed: dict[str, object]) -> None:
    offsets, (fault,) = read_export(item(**changed))
    assert (offsets, fault.what) == ([], "item 0")


@pytest.mark.fault("tool-F11")
@pytest.mark.parametrize("name", ["a/b", "", "..", "a\x00b", "a\nb", "a\u202eb"])
def test_any_name_of_a_group_in_kafka_is_read_and_not_for_zookeeper(name: str) -> None:
    exported = attrs.evolve(WITHOUT_EPOCH, group=name)
    text = envelope(Listing(KIND, COLUMNS, [exported.item]))
    assert read_export(text) == ([exported], [])
    offsets, (fault,) = read_export(text, "zookeeper")
    assert (offsets, fault.message) == ([], f"group {name!r} is not a name")


def test_a_partition_with_two_offsets_is_a_fault() -> None:
    twice = zk_lines([IN_ZOOKEEPER]) + "/consumers/g/offsets/flights/0:43\n"
    _, (fault,) = read_export(twice)
    assert fault.message == "flights-0 of group g is at 42 before, and 43 here"


def test_groups_whose_names_differ_in_case_are_two() -> None:
    offsets, faults = read_export("/consumers/g/offsets/t/0:1\n/consumers/G/offsets/t/0:2\n")
    assert ([offset.group for offset in offsets], faults) == (["g", "G"], [])


@pytest.mark.parametrize("text", ["{", json.dumps({"kind": "groups", "version": 1, "items": []})])
def test_json_that_is_no_export_is_refused(text: str) -> None:
    _, (fault,) = read_export(text)
    assert fault.what == "file"
