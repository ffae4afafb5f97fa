"""Missing packages are named in one sentence, before Spark fails in its own words."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_connector.worker_python import _check

ROOT = Path(__file__).resolve().parents[2]


def import_source(first: str) -> str:
    """Run a statement and import the source in a new process; return its error's last line."""
    program = f"import sys; {first}; import spark_connector.source"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return ended.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(package: str) -> None:
    last_line = import_source(f"sys.modules[{package!r}] = None")
    assert last_line.startswith("ImportError: the Spark source needs pyspark")
    assert package in last_line
    assert last_line.endswith("pip install 'kgroup[spark]'")


def test_a_pyspark_that_is_too_old_is_named_with_the_version_that_is_needed(tmp_path: Path) -> None:
    # PySpark 4.0 had sources in Python, but no pyspark.sql.streaming.datasource.
    sql = tmp_path / "pyspark" / "sql"
    sql.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (sql / "__init__.py").touch()
    classes = ("", "Reader", "StreamReader", "StreamWriter", "Writer")
    old = "".join(f"class DataSource{name}: pass\n" for name in classes)
    (sql / "datasource.py").write_text(old)

    last_line = import_source(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert last_line.startswith("ImportError: the Spark source needs pyspark 4.2 or newer")
    assert "pyspark.sql.streaming" in last_line
    assert last_line.endswith("pip install 'kgroup[spark]'")


def test_a_workers_python_that_lacks_a_package_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ImportError, match=f"PYSPARK_PYTHON={sys.executable}") as refused:
        _check(str(python))
    assert str(python) in str(refused.value)
    assert "No module named" in str(refused.value)


def test_a_workers_python_that_does_not_exist_is_named() -> None:
    with pytest.raises(ImportError, match=r"no-such-python.*pip install 'kgroup\[spark\]'"):
        _check("no-such-python")


def test_the_drivers_own_python_is_right_for_workers() -> None:
    _check(sys.executable)
