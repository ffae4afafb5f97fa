"""The wheel with the hot loops compiled."""

import shutil
import zipfile
from pathlib import Path

import pytest

from building.compiled import MODULES
from protocol.version import __version__
from tests.building.conftest import build_wheel, make_project


@pytest.fixture(scope="module")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as anybody gets it who has a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("missing tool: a C compiler")
    return build_wheel(tmp_path_factory.mktemp("compiled"), KGROUP_PURE="")


def test_compiled_wheel_has_each_module_twice_and_is_of_its_platform(compiled_wheel: Path) -> None:
    names = zipfile.ZipFile(compiled_wheel).namelist()
    modules = {f"kgroup/{module}" for module in MODULES}
    libraries = {name.split(".")[0] + ".py" for name in names if name.endswith(".so")}

    assert modules <= set(names)
    assert libraries == {*modules, "kgroup/protocol/compiled__mypyc.py"}
    assert {name.split("/")[0] for name in names} == {
        "kgroup",
        *(f"kgroup-{__version__}.{part}" for part in ("data", "dist-info")),
    }
    assert "none-any" not in compiled_wheel.name


def test_compiled_wheel_reads_and_writes_records(compiled_wheel: Path, tmp_path: Path) -> None:
    project = make_project(compiled_wheel, tmp_path)
    printed = project.run(
        "python",
        "-c",
        "from kgroup.protocol.records.batch import decode_rows, encode_batch\n"
        "from kgroup.protocol.records import record_walk\n"
        "print(decode_rows(encode_batch([(7, b'k', b'v', ())])), record_walk.__file__)",
    )
    assert printed.startswith("[(0, 7, b'k', b'v', ())] ")
    assert printed.endswith(".so\n")
    assert project.run("kbroker", "--version") == f"kbroker {__version__} (compiled)\n"


@pytest.mark.product
def test_same_sources_give_the_same_compiled_wheel(compiled_wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path, KGROUP_PURE="").read_bytes() == compiled_wheel.read_bytes()
