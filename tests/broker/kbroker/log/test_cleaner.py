"""`kbroker log cleaner` on directories that are being cleaned, were cleaned, or never were."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main
from compaction.status import STATUS_FILE
from core_log.directory import LogDirectory
from core_log.segments.file_name import file_name
from tests.compaction.house import OTHER, T0, House
from tests.stage.clock import run_in_virtual_time


def play(directory: Path, story: Callable[[House], Awaitable[None]]) -> House:
    """Let a story happen in a house on this directory."""

    async def live() -> House:
        house = House(LogDirectory(directory))
        await story(house)
        return house

    return run_in_virtual_time(live())


def cleaner(directory: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["log", "cleaner", "--log-dirs", str(directory), *args])


def items(directory: Path, *args: str) -> list[dict[str, Any]]:
    result = cleaner(directory, "-o", "json", *args)
    assert result.exit_code == 0, result.output
    listing = json.loads(result.stdout)
    assert listing["kind"] == "cleaner"
    listed: list[dict[str, Any]] = listing["items"]
    return listed


@pytest.mark.fault("users-27")
def test_where_there_is_nothing_to_show_it_says_that_it_has_looked(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n0\n")
    result = cleaner(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 log directory: no log has been looked at by a cleaner\n"
    quarantined = cleaner(tmp_path, "--quarantined").stderr
    assert quarantined == "1 log directory: no log is quarantined\n"
    assert cleaner(tmp_path, "-o", "json").stderr == ""


def test_a_log_that_was_cleaned_and_written_to_again(tmp_path: Path) -> None:
    sizes = []

    async def story(house: House) -> None:
        house.write_rounds(4)
        sizes.append(house.log().size)
        await house.live(1)
        sizes.append(house.log().size)
        house.write_rounds(2)
        sizes.append(house.log().size)

    play(tmp_path, story)
    size, clean, total = sizes
    (item,) = items(tmp_path)
    assert (item["topic"], item["partition"], item["state"]) == ("positions", 0, "cleaned")
    assert (item["first_dirty_offset"], item["dirty_bytes"]) == (40, total - clean)
    assert item["dirty_ratio"] == round((total - clean) / total, 4)
    assert (item["bytes_read"], item["bytes_written"]) == (size, clean)
    assert (item["messages_read"], item["messages_written"]) == (40, 10)
    assert item["last_pass_ms"] == T0
    assert (item["reason"], item["next_try_ms"]) == (None, None)
    assert "2020-09-13T12:26:40.000Z" in cleaner(tmp_path).stdout


def test_a_log_that_cannot_be_cleaned_is_shown_with_the_reason(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.write_rounds(4)
        house.write_rounds(4, tp=OTHER)
        house.log().directory.open_segment(file_name(10, ".log")).write(70, b"\xff")
        await house.live(1)

    play(tmp_path, story)
    (item,) = items(tmp_path, "--quarantined")
    assert (item["partition"], item["state"], item["failures"]) == (0, "quarantined", 1)
    assert item["next_try_ms"] == T0 + 5000
    assert "CRC" in item["reason"]
    assert (item["first_dirty_offset"], item["dirty_ratio"]) == (0, 1.0)
    assert [item["state"] for item in items(tmp_path)] == ["quarantined", "cleaned"]


def test_a_log_that_waits_is_shown_before_it_was_ever_cleaned(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.write_rounds(3)
        house.cleaner.high_watermark = lambda tp: 5
        await house.live(1)

    play(tmp_path, story)
    (item,) = items(tmp_path)
    assert (item["state"], item["first_dirty_offset"]) == ("waiting", 0)
    assert item["bytes_per_second"] is None
    assert items(tmp_path, "--quarantined") == []


def test_any_topic_can_be_asked_for_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.write_rounds(3)

    house = play(tmp_path, story)
    assert items(tmp_path) == []
    (item,) = items(tmp_path, "positions")
    assert item["dirty_bytes"] == house.log().size
    result = cleaner(tmp_path, "posotions")
    assert (result.exit_code, "there is no log of this topic here" in result.stderr) == (1, True)


def test_a_status_that_cannot_be_read_is_a_failure_and_the_rest_is_shown(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.write_rounds(3)
        await house.live(1)

    play(tmp_path, story)
    (tmp_path / STATUS_FILE).write_text("{")
    result = cleaner(tmp_path, "-o", "json")
    assert result.exit_code == 1
    listing = json.loads(result.stdout)
    assert [item["first_dirty_offset"] for item in listing["items"]] == [30]
    assert STATUS_FILE in listing["errors"][0]["what"]
