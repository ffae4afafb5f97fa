"""Python processes of ours: they import what this process does, not what the current folder has.

`python -m` looks into the current folder first, before the standard library: a `random.py` of the
user's would be taken for Python's own, and run.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder of our packages."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of `python -m module`; run it in `python_environment()`."""
    # A beginner's folder has a random.py, and others may write a folder (fault users-3, was: []).
    options = ["-P"]
    return [sys.executable, *options, "-m", module, *arguments]


def python_environment() -> dict[str, str]:
    """Return this process's environment, in which a child finds the same packages of ours."""
    environment = dict(os.environ)
    installed = (*site.getsitepackages(), site.getusersitepackages())
    # A checkout; what is installed must not come before the standard library.
    if PACKAGES not in {Path(folder).resolve() for folder in installed}:
        paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def keep_current_folder_out() -> None:
    """Have `multiprocessing` too start such processes, whose command lines it makes itself."""
    # What recovers logs would import the current folder's modules (fault users-3).
    os.environ["PYTHONSAFEPATH"] = "1"
