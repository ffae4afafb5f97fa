"""Compile Java programs of the tests, by `javac` or, without one, by the Eclipse compiler.

Each process that runs tests compiles for itself: classes that another process's compiler replaces
cannot be loaded at that moment.
"""

import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer import fetch_jars
from tests.stage.stock_kafka import jars
from zk.embedded import find_java

_COMPILER = "org.eclipse.jdt:ecj:3.33.0"  # the last that runs on Java 17 needs nothing newer
_COMPILER_MAIN = "org.eclipse.jdt.internal.compiler.batch.Main"
_COMPILE_S = 120.0


def compile_java(name: str, sources: Sequence[Path], libraries: Path) -> str:
    """Compile `sources` against the jars in `libraries`; return the class path to run them with.

    `name` tells the results of a process apart.
    """
    jar_files = sorted(libraries.glob("*.jar"))
    classes = Path(_directory_of_this_process().name) / name
    arguments = ["-proc:none", "-nowarn", "-cp", _join(jar_files), "-d", str(classes)]
    ran = subprocess.run(
        [*_compiler(), *arguments, *map(str, sources)],
        capture_output=True,
        text=True,
        timeout=_COMPILE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return _join([classes, *jar_files])


@functools.cache
def _directory_of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="classes-")


def _compiler() -> list[str]:
    java = find_java()
    javac = java.with_name("javac")
    if javac.exists():
        return [str(javac)]
    eclipse = jars(lambda: fetch_jars("ecj", [_COMPILER]))
    class_path = _join(sorted(eclipse.glob("*.jar")))
    return [str(java), "-cp", class_path, _COMPILER_MAIN, "-source", "17", "-target", "17"]


def _join(paths: Sequence[Path]) -> str:
    return ":".join(map(str, paths))
