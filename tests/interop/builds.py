"""What is built for tests with stock clients: once, and kept beside the jars of Kafka."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.peer import CACHE

_CACHE = CACHE / "drivers"
_BUILD_S = 1800.0


def tool(name: str, package: str) -> str:
    """Return the path of a program, which has this package in Debian. Skips where it is missing."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"missing tool: {name} (Debian: apt-get install {package})")
    return path


@functools.cache
def _digest(sources: tuple[Path, ...], recipe: str) -> str:
    contents = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    return hashlib.sha256(contents + recipe.encode()).hexdigest()[:16]


def built(
    name: str, sources: Sequence[Path], build: Callable[[Path], None], *, recipe: str = ""
) -> Path:
    """Return the directory of what is built from these sources; the first call builds it.

    It is built again when they have changed, or `recipe` has, a text that says how.
    """
    directory = _CACHE / f"{name}-{_digest(tuple(sorted(sources)), recipe)}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want it too
        if directory.is_dir():
            return directory

        # It gets its final name when all is there.
        with tempfile.TemporaryDirectory(dir=_CACHE) as temporary:
            incomplete = Path(temporary) / name
            incomplete.mkdir()
            build(incomplete)
            return incomplete.rename(directory)


def run(command: Sequence[str], directory: Path) -> str:
    """Run a step of a build in a directory; return what it wrote. Raises AssertionError."""
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
