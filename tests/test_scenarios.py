"""The tables that say which test tries what name tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize(
    "table",
    ["README.md", "storage_scenarios.md", "group_scenarios.md", "transaction_scenarios.md"],
)
def test_every_test_that_a_table_names_is_there(table: str) -> None:
    named = NAMED.findall((HERE / table).read_text("utf-8"))
    assert named
    texts = {file: (HERE.parent / file).read_text("utf-8") for file, _ in named}
    missing = [
        f"{file}::{test}" for file, test in named if test and f"def {test}(" not in texts[file]
    ]
    assert missing == []
