"""Each bug can be planted where `make mutants` wants to; the quickest to find are found here."""

from pathlib import Path

import pytest

from tests.mutants.changed_copy import ROOT, copy_of_the_tree
from tests.mutants.marks import find_remedies
from tests.mutants.places import plan_change
from tests.mutants.planted import BUGS, Bug, first_violated, first_violated_without
from tests.mutants.planted_faults import PLANTED_FAULTS
from tests.mutants.planted_members import MEMBER_BUGS
from tests.mutants.planted_transactions import TRANSACTION_BUGS

QUICK = (
    "acks=all is answered when the leader has it",
    "a controller is elected before its epoch is raised",
    "a commit of an old generation is accepted",
)
WITHIN = 5


@pytest.mark.parametrize("bug", [*BUGS, *MEMBER_BUGS, *TRANSACTION_BUGS], ids=lambda bug: bug.what)
def test_a_bug_has_one_place_and_changes_what_stands_there(bug: Bug) -> None:
    change = plan_change(ROOT, bug.place, bug.code, bug.instead)

    assert change.before != change.after
    compile(change.after, change.file, "exec")


@pytest.mark.parametrize(
    "bug", [b for b in (*BUGS, *MEMBER_BUGS) if b.what in QUICK], ids=lambda bug: bug.what
)
def test_a_planted_bug_is_found_in_a_few_stories(bug: Bug, tmp_path: Path) -> None:
    assert first_violated(copy_of_the_tree(tmp_path / "tree"), bug, WITHIN) is not None


def test_each_planted_fault_has_a_marked_remedy() -> None:
    mended = {remedy.fault for remedy in find_remedies(ROOT)}

    assert {planted.fault for planted in PLANTED_FAULTS} <= mended


def test_a_planted_fault_is_found_in_a_few_stories(tmp_path: Path) -> None:
    (planted,) = (planted for planted in PLANTED_FAULTS if planted.fault == "security-1")

    copy = copy_of_the_tree(tmp_path / "tree")
    assert first_violated_without(copy, planted, within=100) is not None
