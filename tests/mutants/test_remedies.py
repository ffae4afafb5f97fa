"""The remedies are where `make mutants` looks for them; the table of hazards names real tests."""

import re
from pathlib import Path

import pytest

from tests.mutants.remedies import REMEDIES, Remedy

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.what)
def test_a_remedy_stands_once_in_its_file(remedy: Remedy) -> None:
    whole = (ROOT / remedy.file).read_text()
    assert whole.count(remedy.words) == 1
    assert remedy.words != remedy.instead
    compile(whole.replace(remedy.words, remedy.instead), remedy.file, "exec")
    for tests in remedy.noticed_by.split():
        assert (ROOT / tests.partition("::")[0]).is_file()


def test_the_table_names_each_hazard_and_tests_that_exist() -> None:
    table = (ROOT / "tests/README.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \|(.*)\|$", table, re.MULTILINE))
    assert [int(number) for number in rows] == list(range(1, 51))
    for number, row in rows.items():
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named or "none" in row, f"hazard {number} has no test"
        for file, test in named:
            assert (ROOT / file).is_file(), file
            assert not test or f"def {test}(" in (ROOT / file).read_text(), test
