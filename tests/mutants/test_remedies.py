"""The remedies are where `make mutants` looks for them; the tables name real tests."""

import re
from pathlib import Path

import pytest

from tests.mutants.all_remedies import REMEDIES
from tests.mutants.changed_copy import ROOT
from tests.mutants.places import plan_change
from tests.mutants.remedy import Remedy

README = ROOT / "tests/README.md"
HAZARDS = range(1, 51)


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.what)
def test_a_remedy_has_one_place_and_changes_what_stands_there(remedy: Remedy) -> None:
    change = plan_change(ROOT, remedy.place, remedy.code, remedy.instead)

    assert change.before != change.after
    compile(change.after, change.file, "exec")


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.what)
def test_a_remedy_names_tests_that_exist(remedy: Remedy) -> None:
    assert remedy.tests
    for test in remedy.tests.split():
        _check_exists(*test.split("::"))


def test_the_tables_name_each_hazard_once_and_tests_that_exist() -> None:
    rows = re.findall(r"^\| ([A-Z]?\d+) \|(.*)\|$", README.read_text(), re.MULTILINE)
    numbers = [number for number, _ in rows]

    assert len(numbers) == len(set(numbers))
    assert [int(number) for number in numbers if number.isdigit()] == list(HAZARDS)
    for number, row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", row)
        assert named or "none" in row, f"{number} has no test"
        for file, test in named:
            _check_exists(file, *test.split("::")[1:])


def _check_exists(path: str, *names: str) -> None:
    file: Path = ROOT / path
    assert file.exists(), path
    for name in names:
        function, _, _ = name.partition("[")
        assert re.search(rf"^\s*(async )?(def|class) {function}\b", file.read_text(), re.M), name
