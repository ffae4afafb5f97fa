"""Faults are marked at remedies and at tests, and a marked statement can be taken away."""

import ast
from pathlib import Path

import pytest

from tests.mutants.changed_copy import ROOT
from tests.mutants.marks import (
    MarkedTest,
    MisplacedMark,
    find_remedies,
    find_tests,
    table,
    without,
)

# The ids are put together here, so that no text of this file marks anything.
MARK = "(fault " + "core-R1)"
DOORS = f"""\
def open(key):
    # A worn key breaks in the lock
    # and stays there {MARK}.
    if key.is_worn:
        return "shut"
    elif key.is_new:  # {MARK}
        return "stiff"
    else:
        turn(key)
    # {MARK}
    with lock:
        key.uses += 1
    key.limit = min(key.limit, 10)  # {MARK}
    return "open"
"""


# --- what is taken away -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "gone", "stays"),
    [
        (3, "key.is_worn", "key.is_new"),
        (6, "key.is_new", "turn(key)"),
        (10, "with lock", "key.uses += 1"),
        (13, "min(", "key.uses += 1"),
    ],
    ids=["branch, not its else", "elif", "with, not its body", "comment behind the statement"],
)
def test_a_marked_statement_is_taken_away_alone(line: int, gone: str, stays: str) -> None:
    rest = without(DOORS, line)

    assert gone in DOORS
    assert gone not in rest
    assert stays in rest
    compile(rest, "doors", "exec")


@pytest.mark.parametrize(
    ("statement", "rest"),
    [
        ("x = min(limit, bound(x))", "x = f(1)"),
        ("x: int = bound(x)", "x: int = f(1)"),
        ("return bound(x)", "return f(1)"),
        ("limit=bound(x),", "limit=f(1),"),
    ],
)
def test_a_value_goes_back_to_what_it_was(statement: str, rest: str) -> None:
    mark = MARK.replace(")", ", was: f(1)).")
    block = "limited(\n        # {}\n        {}\n    )" if "," in statement[-1] else "# {}\n    {}"
    source = f"def check(x):\n    {block.format(mark, statement)}\n    done()\n"
    expected = source.replace(statement, rest)

    number = next(n for n, line in enumerate(source.splitlines(), 1) if "# " in line)
    assert without(source, number) == ast.unparse(ast.parse(expected)) + "\n"


def test_a_value_that_is_none_is_refused() -> None:
    mark = MARK.replace(")", ", was: nothing at all).")

    with pytest.raises(MisplacedMark, match="nothing at all is no expression"):
        without(f"# {mark}\nx = 1\n", 1)


def test_a_mark_at_the_end_of_a_block_marks_nothing() -> None:
    source = f"def close():\n    lock()\n    # {MARK}\nopen()\n"

    with pytest.raises(MisplacedMark, match="line 3 marks no statement"):
        without(source, 3)


# --- what is found ------------------------------------------------------------------------------


def test_remedies_and_tests_are_found_and_make_a_row(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "broker/doors.py").write_text(f'TEXT = "{MARK}"\n# {MARK}\nX = 1\n')
    (tmp_path / "tests/test_doors.py").write_text(
        "@pytest.mark.fault('core-R1')\ndef test_a_door(): ...\n"
        "class TestLocks:\n"
        "    @pytest.mark.fault('core-R1', 'zk-2')\n    def test_a_lock(self): ...\n"
    )

    assert [(remedy.fault, remedy.line) for remedy in find_remedies(tmp_path)] == [("core-R1", 2)]
    assert table(tmp_path) == [
        (
            "core-R1",
            "broker/doors.py:2",
            "tests/test_doors.py::test_a_door, tests/test_doors.py::TestLocks::test_a_lock",
        ),
        ("zk-2", "", "tests/test_doors.py::TestLocks::test_a_lock"),
    ]


def test_a_test_mark_without_an_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_doors.py").write_text(
        "@pytest.mark.fault('R1')\ndef test_a_door(): ...\n"
    )

    with pytest.raises(MisplacedMark, match="names no fault"):
        find_tests(tmp_path)


def test_a_test_can_say_that_its_fault_needs_no_remedy(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_doors.py").write_text(
        "@pytest.mark.fault('core-R1', needs_no_remedy='as Kafka')\ndef test_a_door(): ...\n"
    )

    assert find_tests(tmp_path) == [
        MarkedTest("core-R1", "tests/test_doors.py::test_a_door", needs_no_remedy=True)
    ]


# --- the tree -----------------------------------------------------------------------------------


def test_each_marked_remedy_of_the_tree_can_be_taken_away() -> None:
    for remedy in find_remedies(ROOT):
        source = remedy.file.read_text()
        try:
            rest = without(source, remedy.line)
        except MisplacedMark as error:
            pytest.fail(f"{remedy.file.relative_to(ROOT)}: {error}")
        assert rest != source
        compile(rest, remedy.file, "exec")


def test_each_fault_of_the_tree_has_a_remedy_and_a_test() -> None:
    tests = find_tests(ROOT)
    needs_none = {test.fault for test in tests if test.needs_no_remedy}
    tested = {test.fault for test in tests}
    mended = {remedy.fault for remedy in find_remedies(ROOT)}

    assert mended - tested == set(), "remedies without a test"
    assert tested - mended - needs_none == set(), "tests of faults without a remedy"
