"""The tests run on a machine that has no more than Debian's smallest image, Python and Java."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stage.processes import ROOT

PROCPS = {"free", "kill", "pgrep", "pidof", "pkill", "pmap", "ps", "sysctl", "top", "watch", "w"}
"""Programs that slim images lack; `kill` of a shell is its own."""


def commands_in(file: Path) -> Iterator[str]:
    """Yield the first word of each list that is a command line, as far as it is written there."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("subprocess."):
            arguments = node.args[0] if node.args else None
            if isinstance(arguments, ast.List) and arguments.elts:
                yield ast.unparse(arguments.elts[0]).strip("'")


@pytest.mark.fault("users-4", needs_no_remedy="a test itself started it")
def test_no_test_needs_procps() -> None:
    started = {
        (file.relative_to(ROOT).as_posix(), command)
        for folder in ("tests", "examples", "kgroup")
        for file in (ROOT / folder).rglob("*.py")
        for command in commands_in(file)
    }
    assert started
    assert [command for command in sorted(started) if command[1] in PROCPS] == []
