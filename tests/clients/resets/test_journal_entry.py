"""Entries of the journal as records: whole, in parts, of two commands, of another version."""

from __future__ import annotations

import json

import attrs
import pytest

from clients.resets.journal_entry import (
    JournalEntry,
    JournalUnreadable,
    Record,
    Status,
    last_id,
    read_entries,
    records_of,
    repairs,
    tombstones_of,
)
from clients.resets.offset_change import OffsetChange
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


def entry(
    number: int = 1, *, token: str = "a", partitions: int = 2, **fields: object
) -> JournalEntry:
    """An entry of a group whose name needs care."""
    changes = tuple(
        OffsetChange(
            TopicPartition("t", partition),
            "kafka",
            OffsetAndMetadata(5, "note ✓", 3) if partition else None,
            OffsetAndMetadata(7),
        )
        for partition in range(partitions)
    )
    made = JournalEntry(
        id=number,
        at_ms=1_700_000_000_000,
        who="me@here",
        reason='it\'s "late"\n',
        command="kgroup reset",
        cluster="c",
        group='g "1"\n🛩',
        action="reset",
        token=token,
        changes=changes,
    )
    return attrs.evolve(made, **fields)


def test_an_entry_is_read_as_it_was_written() -> None:
    written = entry(status=Status.UNDONE, undone_by=9)
    assert read_entries(records_of(written)) == {1: written}


def test_values_are_json_with_the_fields_that_others_read() -> None:
    ((key, value),) = records_of(entry(17))
    assert key == "17"
    content = json.loads(value or "")
    expected = {"version": 1, "id": 17, "status": "begun", "stores": ["kafka"], "action": "reset"}
    assert expected.items() <= content.items()
    assert content["old"][0] == {"topic": "t", "partition": 0, "store": "kafka", "offset": None}
    assert content["old"][1]["metadata"] == "note ✓"


def test_a_large_entry_is_split_and_its_head_comes_last() -> None:
    large = entry(3, partitions=40)
    records = records_of(large, max_bytes=2000)
    assert len(records) > 2
    assert records[-1][0] == "3"
    assert all(len((value or "").encode()) <= 2000 for _, value in records)
    assert read_entries(records) == {3: large}


def test_an_entry_of_which_a_part_is_missing_is_an_error_with_its_name() -> None:
    records = records_of(entry(3, partitions=40), max_bytes=2000)
    with pytest.raises(JournalUnreadable, match="journal entry 3/2 is missing"):
        read_entries(records[1:])


def test_the_newest_record_of_an_entry_counts() -> None:
    log = records_of(entry()) + records_of(entry(status=Status.DONE))
    assert read_entries(log)[1].status is Status.DONE


def test_a_deleted_entry_is_gone_with_its_parts_and_its_id_is_not_used_again() -> None:
    log = records_of(entry(3, partitions=40), max_bytes=2000)
    log += tombstones_of(entry(3), log)
    assert (read_entries(log), last_id(log)) == ({}, 3)


def test_a_journal_of_another_version_is_one_sentence_that_says_what_to_do() -> None:
    value = json.dumps({"version": 2, "id": 4})
    with pytest.raises(JournalUnreadable) as raised:
        read_entries([("4", value)])
    assert str(raised.value) == (
        "journal entry 4 has version 2, and this kgroup reads version 1: use the kgroup that "
        "wrote it"
    )


@pytest.mark.parametrize(
    "value", ["", "no json", "[]", '{"version": 1}', '{"version": 1, "parts": "x"}']
)
def test_what_is_no_entry_is_an_error_with_its_name(value: str) -> None:
    with pytest.raises(JournalUnreadable, match="journal entry 4"):
        read_entries([("4", value)])


@pytest.mark.parametrize("key", ["", "x", "4/", "-1", "9" * 30])
def test_a_key_that_is_no_id_is_no_entry(key: str) -> None:
    assert read_entries([(key, "whatever")]) == {}


# --- two commands with one id


def latest(log: list[Record]) -> list[Record]:
    """The log after compaction."""
    return list(dict(log).items())


def test_of_two_commands_with_one_id_the_first_keeps_it() -> None:
    log = records_of(entry(token="a")) + records_of(entry(token="b"))
    assert repairs(log, entry(token="a")) is None
    correction = repairs(log, entry(token="b"))
    assert correction == records_of(entry(token="a"))
    assert read_entries(log)[1].token == "a"

    log += correction
    assert repairs(log, entry(token="b")) == []
    assert read_entries(latest(log))[1].token == "a"


def test_the_owner_that_ends_meanwhile_is_not_set_back() -> None:
    log = records_of(entry(token="a")) + records_of(entry(token="b"))
    correction = repairs(log, entry(token="b"))
    assert correction is not None
    log += records_of(entry(token="a", status=Status.DONE)) + correction
    assert read_entries(log)[1].status is Status.DONE

    # The log's newest record says begun, so it is corrected once more.
    again = repairs(log, entry(token="b"))
    assert again
    assert read_entries(latest(log + again))[1].status is Status.DONE


def test_parts_of_the_one_that_gives_way_are_deleted() -> None:
    mine = entry(token="b", partitions=40)
    log = records_of(entry(token="a")) + records_of(mine, max_bytes=2000)
    correction = repairs(log, mine)
    assert correction is not None
    assert ("1/2", None) in correction
    assert read_entries(latest(log + correction)) == {1: entry(token="a")}


def test_a_record_that_was_sent_twice_is_still_ours() -> None:
    log = records_of(entry(token="a")) * 2
    assert repairs(log, entry(token="a")) is None
