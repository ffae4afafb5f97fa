"""Compile the hot loops to C with mypyc, from the same source that runs without a compiler.

`MODULES` names the modules whose loops run once a record or once a batch. A module on the list

- has functions, NamedTuples and plain classes with annotated fields: no class of attrs, and none
  that inherits from an enum, a number or a file;
- has no lambda and no function inside a method;
- indexes `bytes` in its loops, not memoryviews, and calls nothing there that is not on the list;
- compares plain ints and has `Final` constants;
- reads as well as any other module, and pays: what is not faster compiled is not on the list.

`COMPILED` in protocol/version.py says which of both runs. The code asks for it only where one of
two ways takes less time when it is compiled, and the other one when it is interpreted.

    python -m building.compiled DIRECTORY

copies the checkout to DIRECTORY and compiles it in place, for tests and benchmarks.
"""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup

MODULES = (
    "core_log/segments/batch_scan.py",
    "protocol/records/batch.py",
    "protocol/records/batch_header.py",
    "protocol/records/builder.py",
    "protocol/records/checksums.py",
    "protocol/records/entry.py",
    "protocol/records/key_values.py",
    "protocol/records/record_spans.py",
    "protocol/records/record_walk.py",
    "protocol/records/validate.py",
    "protocol/records/varint.py",
)

_GROUP = "protocol.compiled"
"""The library that has the code of all modules; their own files only lead to it."""

_MYPY_ARGUMENTS = (
    # The C code must not depend on the checkout's settings, nor on what is installed.
    "--config-file=",
    "--no-site-packages",
    "--ignore-missing-imports",
    # What is not on the list is not compiled, so its types are not checked here.
    "--follow-imports=silent",
)

_NOT_COPIED = (
    *(".git", ".venv", ".*_cache", "__pycache__", "*.egg-info", "*.so"),
    *("build", "dist", "demo-out", "kbroker-data"),
)


def make_extensions(front: str = "") -> list[Extension]:
    """Translate the modules below the current directory, and return what `setup` compiles.

    `front` is the package that they have been put into. Raises ImportError if mypyc is not
    installed, and SystemExit if it refuses a module.
    """
    from mypyc.build import mypycify

    folder = f"{front}/" if front else ""
    extensions: list[Extension] = mypycify(
        [*_MYPY_ARGUMENTS, *(folder + module for module in MODULES)],
        opt_level="2",
        debug_level="0",
        group_name=f"{front}.{_GROUP}" if front else _GROUP,
    )

    # Another compiler may warn of what that of mypyc's authors does not.
    for extension in extensions:
        extension.extra_compile_args = [
            argument for argument in extension.extra_compile_args if argument != "-Werror"
        ]
    return extensions


def copy_compiled(checkout: Path, directory: Path) -> None:
    """Copy a checkout to `directory`, with the modules compiled. Replaces an earlier copy."""
    if directory.exists():
        shutil.rmtree(directory)
    shutil.copytree(checkout, directory, ignore=shutil.ignore_patterns(*_NOT_COPIED))

    with contextlib.chdir(directory):
        setup(
            name="kgroup-compiled",
            packages=[],
            ext_modules=make_extensions(),
            script_args=["--quiet", "build_ext", "--inplace", f"--parallel={os.cpu_count()}"],
        )


if __name__ == "__main__":
    copy_compiled(Path(__file__).resolve().parent.parent, Path(sys.argv[1]).resolve())
