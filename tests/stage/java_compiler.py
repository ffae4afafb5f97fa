"""Compile Java programs of the tests, by `javac` or, without one, by the Eclipse compiler.

Classes are kept, in a folder for each content of their sources: the processes that run tests share
them, and none is replaced while a JVM loads it.
"""

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer import CACHE, fetch_jars
from tests.stage.stock_kafka import jars
from zk.embedded import find_java

_COMPILER = "org.eclipse.jdt:ecj:3.33.0"  # the last that runs on Java 17 needs nothing newer
_COMPILER_MAIN = "org.eclipse.jdt.internal.compiler.batch.Main"
_COMPILE_S = 120.0


def compile_java(name: str, sources: Sequence[Path], libraries: Path) -> str:
    """Compile `sources` against the jars in `libraries`; return the class path to run them with.

    `name` is for the folder of the results.
    """
    jar_files = sorted(libraries.glob("*.jar"))
    compiler = _compiler()
    texts = [source.read_text() for source in sources]
    content = hashlib.sha256("\0".join([*compiler, _join(jar_files), *texts]).encode())
    classes = CACHE / "classes" / f"{name}-{content.hexdigest()[:16]}"

    classes.parent.mkdir(parents=True, exist_ok=True)
    with (classes.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want them too
        if not classes.is_dir():
            _compile(compiler, sources, jar_files, classes)
    return _join([classes, *jar_files])


def _compile(
    compiler: Sequence[str], sources: Sequence[Path], jar_files: Sequence[Path], classes: Path
) -> None:
    """Fill a folder, which gets its name when all is there."""
    with tempfile.TemporaryDirectory(dir=classes.parent) as directory:
        incomplete = Path(directory, "classes")
        arguments = ["-proc:none", "-nowarn", "-cp", _join(jar_files), "-d", str(incomplete)]
        ran = subprocess.run(
            [*compiler, *arguments, *map(str, sources)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_S,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        incomplete.rename(classes)


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
