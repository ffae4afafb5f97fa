"""How `make` finds a Python, and says what is missing: beside stand-ins for Python and apt-get."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.stage.processes import ROOT

pytestmark = pytest.mark.fault("users-23", needs_no_remedy="it is in the Makefile")

WITH_VENV = """#!/bin/sh
[ "$1" = -c ] && exit 0
mkdir -p .venv/bin && : > .venv/bin/python
"""
WITHOUT_ENSUREPIP = """#!/bin/sh
[ "$1" = -c ] && { echo "ModuleNotFoundError: No module named 'ensurepip'" >&2; exit 1; }
echo 'The virtual environment was not created successfully'; exit 1
"""
ID = "#!/bin/sh\necho {user}\n"
APT_GET = '#!/bin/sh\necho "apt-get $*"; [ "$1" = update ] || cp {python} bin/python3\n'


def make(folder: Path, python: str | None, user: int) -> subprocess.CompletedProcess[str]:
    """Make the environment where nothing else is on the path."""
    if shutil.which("make") is None:
        pytest.skip("missing tool: make")
    shutil.copy(ROOT / "Makefile", folder)
    programs = {"id": ID.format(user=user), "good": WITH_VENV}
    programs["apt-get"] = APT_GET.format(python=folder / "bin" / "good")
    if python is not None:
        programs["python3"] = python
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    for name in ("sh", "mkdir", "rm", "cp"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))

    return subprocess.run(
        [str(shutil.which("make")), "SHELL=/bin/sh", ".venv/bin/python"],
        cwd=folder,
        env={"PATH": str(folder / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("python", [None, WITHOUT_ENSUREPIP], ids=["no Python", "no venv"])
def test_root_gets_what_is_missing_of_python(tmp_path: Path, python: str | None) -> None:
    made = make(tmp_path, python, user=0)
    assert made.returncode == 0, made.stderr
    assert "apt-get install -y python3 python3-venv" in made.stdout
    assert (tmp_path / ".venv" / "bin" / "python").exists()


@pytest.mark.parametrize("python", [None, WITHOUT_ENSUREPIP], ids=["no Python", "no venv"])
def test_others_are_told_in_a_line_what_is_missing_of_python(
    tmp_path: Path, python: str | None
) -> None:
    made = make(tmp_path, python, user=1000)
    first, *_ = made.stderr.splitlines()
    assert (made.returncode, made.stdout) == (2, "")
    assert first == (
        "error: Python 3.11 or newer is needed, with its venv. "
        "Debian: apt-get install python3 python3-venv."
    )


def test_python_that_has_all_makes_the_environment(tmp_path: Path) -> None:
    made = make(tmp_path, WITH_VENV, user=1000)
    assert (made.returncode, made.stdout) == (0, "python3 -m venv .venv\n"), made.stderr
