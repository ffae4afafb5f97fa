"""The texts of errors in the tables of docs/ are those of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stage.processes import ROOT

PACKAGES = ("clients", "broker", "groups", "offsets", "protocol", "zk", "core_log", "compaction")
TABLES = {
    "docs/compaction.md": "reason",
    "docs/consumer-groups.md": "in the log, as an exception, or in `connector.metrics.reba",
    "docs/security.md": "what the error says",
}
"""The beginning of the header of each page's table of errors."""
GAP = "…"
"""Stands for a value, in a quoted text and in a text of the code."""
NOT_OURS = {"No space left on device"}


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings of a module, with GAP for each value."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[a-z]", GAP, node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield "".join(map(str, parts))


def quoted(page: str, header: str) -> Iterator[str]:
    """Yield the texts in the first column of a table."""
    _, _, rest = (ROOT / page).read_text("utf-8").partition(f"\n| {header}")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    for row in rows:
        for text in re.findall(r"`([^`]+)`", row.split("|")[1]):
            # Others are names of classes and settings.
            if text.count(" ") >= 2 and text not in NOT_OURS:
                yield text


@pytest.fixture(scope="module")
def code() -> str:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return "\n".join(text for path in files for text in texts_of(path))


@pytest.mark.parametrize("page", TABLES)
def test_quoted_errors_are_in_the_code(page: str, code: str) -> None:
    errors = list(quoted(page, TABLES[page]))
    assert len(errors) >= 3
    for error in errors:
        # Values are numbers and names of the example; what follows a colon may be another text.
        for part in re.split(rf"{GAP}|\b[A-Z0-9][A-Z0-9-]*\b|/\S*|: ", error):
            assert part.strip() in code, f"{page}: `{error}`: {part!r}"
