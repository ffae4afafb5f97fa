"""Ninety stories of a group hold; tests/groups/zookeeper/stories/ says what that means.

Sixty more wait for `make interop`.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kgroup.testing.story import Violation
from tests.groups.zookeeper.stories.figures import FEWEST_FAULTS
from tests.groups.zookeeper.stories.promises import Promises
from tests.groups.zookeeper.stories.story import Story, tell_whole
from tests.groups.zookeeper.stories.troubles import CLEAN_TROUBLES, TROUBLES

CHAPTER, OF_EACH_RUN = 30, 3
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param(chapter, marks=() if chapter < OF_EACH_RUN else pytest.mark.product)
        for chapter in range(5)
    ],
)
def test_thirty_stories_in_which_something_went_wrong_hold(
    chapter: int, record_property: Callable[[str, object], None]
) -> None:
    counted: list[Story] = []
    seed = chapter * 1000

    while len(counted) < CHAPTER:
        story = tell_whole(seed)
        assert story.faults.total() >= FEWEST_FAULTS
        if story.bites:  # else nothing was tried
            counted.append(story)
        seed += 1

    total = sum(story.faults.total() for story in counted)
    bites = sum(story.bites.total() for story in counted)
    overtaken = sum(story.reorderings for story in counted)
    kinds = {*TROUBLES, *CLEAN_TROUBLES}
    assert len(set().union(*(story.faults for story in counted))) == len(kinds)
    assert {story.reset for story in counted} == {"smallest", "largest"}

    record_property(
        "counts",
        f"seeds {chapter * 1000}-{seed - 1}: {CHAPTER} stories of a group, {total} faults that bit "
        f"{bites} times, {overtaken} calls overtaken",
    )


def test_a_story_is_told_again_to_the_last_word() -> None:
    transcripts = [
        subprocess.run(
            [sys.executable, "-m", "tests.groups.zookeeper.simulate", "--tell", "7"],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert transcripts[0] == transcripts[1]
    assert "a joins with" in transcripts[0]


def test_a_violation_ends_the_story_and_shows_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Promises, "owner", lambda promises, partition: ("g_nobody", 0))
    with pytest.raises(Violation) as violation:
        tell_whole(3)
    lines = str(violation.value).splitlines()
    assert lines[0].startswith("seed 3: ")
    assert any("VIOLATION: " in line for line in lines)
    assert lines[-1] == "to replay: make simulate SEEDS=3"
