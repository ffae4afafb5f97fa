"""The build backend that pyproject.toml names: setuptools, with one package in the wheel (PEP 517).

An editable install has the packages side by side, as the checkout has them. A wheel is built from
a copy of the checkout in which they are one package. Its hot loops are compiled (compiled.py), for
one platform and one version of Python. With KGROUP_PURE set, or where they cannot be compiled, the
wheel is pure, one for all. The same sources give the same bytes, today or later: dates come from
SOURCE_DATE_EPOCH, or are constant, and files are of nobody.
"""

import contextlib
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import build_editable

from building.one_package import FRONT, copy_below_front, rewrite_names

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

EARLIEST_DATE = "315532800"
"""Date of all files unless SOURCE_DATE_EPOCH is set: 1980, where the dates of zip files begin."""

Settings = dict[str, str | list[str] | None]


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel of the checkout in the current directory. Returns its file name."""
    directory = str(Path(wheel_directory).resolve())

    if not os.environ.get("KGROUP_PURE"):
        try:
            with _enter_copy(), _same_bytes():
                _write_man_pages()
                Path("setup.py").write_text(_SETUP_COMPILED, "utf-8")
                return str(build_meta.build_wheel(directory, config_settings))
        # No mypyc; or setuptools ends the process, mostly for want of a compiler.
        except (ImportError, SystemExit) as error:
            print(f"kgroup: not compiled, so the wheel is pure Python: {error}", file=sys.stderr)

    with _enter_copy(), _same_bytes():
        _write_man_pages()
        return str(build_meta.build_wheel(directory, config_settings))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    """Write the metadata of the wheel, without compiling it. Returns their folder's name."""
    directory = str(Path(metadata_directory).resolve())
    with _enter_copy(), _same_bytes():
        return str(build_meta.prepare_metadata_for_build_wheel(directory, config_settings))


_SETUP_COMPILED = f"""
from setuptools import setup
from building.compiled import make_extensions
setup(ext_modules=make_extensions("{FRONT}"))
"""


@contextlib.contextmanager
def _enter_copy() -> Iterator[None]:
    """Change to a copy of the checkout in which the packages are below the front."""
    checkout = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        copy_below_front(checkout, copy)
        for file in ("README.md", "LICENSE"):
            shutil.copy(checkout / file, copy)
        # The commands and the folders of data are named there.
        project = (checkout / "pyproject.toml").read_text("utf-8")
        (copy / "pyproject.toml").write_text(
            rewrite_names(project, "pyproject.toml", checkout), "utf-8"
        )

        with contextlib.chdir(copy):
            yield


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """Return what the commands need, which are asked for their help."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    dependencies: list[str] = project["project"]["dependencies"]
    return dependencies


def _write_man_pages() -> None:
    """Write the manual pages into the copy, and let setuptools install them beside the commands."""
    module = f"{FRONT}.clients.command_line.man_pages"
    # -B: the copy gets no __pycache__.
    subprocess.run([sys.executable, "-B", "-m", module, "man"], check=True)
    with Path("pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[tool.setuptools.data-files]\n"share/man/man1" = ["man/*.1"]\n')


def build_sdist(sdist_directory: str, config_settings: Settings | None = None) -> str:
    """Build the sdist, which has the packages side by side. Returns its file name."""
    # The list that an installation left has other files, and setuptools adds to it.
    Path(f"{FRONT}.egg-info", "SOURCES.txt").unlink(missing_ok=True)
    with _same_bytes():
        name = str(build_meta.build_sdist(sdist_directory, config_settings))
        _pack_again(Path(sdist_directory, name), int(os.environ["SOURCE_DATE_EPOCH"]))
    return name


@contextlib.contextmanager
def _same_bytes() -> Iterator[None]:
    """Take date and modes of files from nowhere else."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", EARLIEST_DATE)
    umask = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(umask)


def _pack_again(path: Path, date_s: int) -> None:
    """Pack a .tar.gz in the order of names, without owners and with one date."""
    unpacked = io.BytesIO()
    with (
        tarfile.open(path) as old,
        tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = date_s
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)

    # Neither the name of the file nor the time goes into gzip's header.
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=date_s) as packed,
    ):
        packed.write(unpacked.getvalue())
