"""An editable install of a clone, which git names as the package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from building.one_package import FRONT
from tests.building.conftest import DEADLINE_S, make_environment, pip
from tests.mutants.changed_copy import copy_of_the_tree
from tests.stage.processes import ROOT


@pytest.mark.fault("users-1", needs_no_remedy="a line of pyproject.toml is")
def test_program_beside_the_clone_imports_the_package(tmp_path: Path) -> None:
    clone = copy_of_the_tree(tmp_path / FRONT)
    for file in ("README.md", "LICENSE"):
        shutil.copy(ROOT / file, clone)
    environment = make_environment(tmp_path / "made")
    python = environment.command("python")[0]
    pip("--python", python, "install", "--no-deps", "--no-build-isolation", "-e", str(clone))
    (tmp_path / "app.py").write_text("import kgroup, clients; print(kgroup.Producer.__module__)")

    for program in (["app.py"], ["-m", "app"], ["-P", "app.py"]):
        printed = subprocess.run(
            [python, *program],
            cwd=tmp_path,
            env=environment.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert printed.stdout == "clients.producer.producer\n", printed.stderr
