"""The wheel in a project whose packages are named as ours: commands, README, Spark, types."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from building.one_package import PACKAGES
from protocol.version import __version__
from tests.building.conftest import DEADLINE_S, Project, build_wheel
from tests.kgroup.testing.toy_client import correct_toy, write_toy
from tests.stage.processes import ROOT, first_line, lives
from tests.stage.waiting import block_until
from zk.embedded import ZkServerError, find_jars, find_java


@attrs.frozen
class Cluster:
    """A `kbroker dev` of the project."""

    project: Project
    bootstrap: str
    zookeeper: str
    data: str

    def program(self, name: str, text: str) -> str:
        """Write a program with this cluster's addresses. Returns its file's name."""
        text = text.replace("localhost:9092", self.bootstrap)
        text = text.replace("localhost:2181", self.zookeeper)
        (self.project.directory / name).write_text(text)
        return name


@pytest.fixture(scope="module")
def cluster(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_java(), find_jars()
    except ZkServerError as error:
        pytest.skip(f"missing tool: {error}")

    data = str(tmp_path_factory.mktemp("data"))
    process = project.begin(
        *("kbroker", "dev", "--port", "0", "--zookeeper-port", "0", "--data", data),
        *("--set", "log.cleaner.backoff.ms=200"),
    )
    try:
        ready = first_line(process, DEADLINE_S)
        assert ready.startswith("ready "), process.communicate()[1]
        addresses = dict(word.split("=", 1) for word in ready.split()[1:])
        yield Cluster(project, addresses["bootstrap"], addresses["zookeeper"], data)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)


def python_blocks() -> list[str]:
    """Return the programs in README.md: a member of a group, producer and admin, Spark."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_wheel_installs_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
        metadata = archive.read(f"kgroup-{__version__}.dist-info/METADATA").decode()
    assert folders == {
        "kgroup",
        *(f"kgroup-{__version__}.{part}" for part in ("data", "dist-info")),
    }
    assert f"\nVersion: {__version__}\n" in metadata


def test_without_a_compiler_the_wheel_is_the_pure_one(wheel: Path, tmp_path: Path) -> None:
    without = build_wheel(tmp_path, KGROUP_PURE="", CC="/bin/false")

    assert without.name == wheel.name == f"kgroup-{__version__}-py3-none-any.whl"
    assert without.read_bytes() == wheel.read_bytes()


def test_project_keeps_its_packages_and_has_ours_below_the_front(project: Project) -> None:
    printed = project.run(
        "python",
        "-c",
        f"import kgroup, {', '.join(PACKAGES)}\n"
        f"print(kgroup.__file__, *[package.OWNER for package in ({', '.join(PACKAGES)})])\n"
        "print(kgroup.Admin.__module__)",
    )
    assert printed.startswith(str(project.environment))
    assert printed.count("the project") == len(PACKAGES)
    assert printed.endswith("\nkgroup.clients.admin.admin\n")


def test_every_module_of_the_wheel_can_be_imported(project: Project) -> None:
    printed = project.run(
        "python",
        "-c",
        "import importlib, pkgutil, sys, kgroup\n"
        "modules = [name for _, name, _ in pkgutil.walk_packages(kgroup.__path__, 'kgroup.')]\n"
        "for name in modules: importlib.import_module(name)\n"
        f"print(len(modules), sorted(sys.modules.keys() & {set(PACKAGES)!r}))",
    )
    count, _, ours = printed.partition(" ")
    assert int(count) > 600
    assert ours == "[]\n"


@pytest.mark.parametrize("command", ["kgroup", "kbroker"])
def test_both_commands_have_the_version(project: Project, command: str) -> None:
    assert project.run(command, "--version") == f"{command} {__version__} (pure Python)\n"


def test_manual_pages_are_where_man_looks(project: Project) -> None:
    directory = project.environment / "share" / "man"
    pages = {page.name for page in (directory / "man1").iterdir()}
    assert {"kgroup.1", "kgroup-describe.1", "kbroker.1", "kbroker-topics-create.1"} <= pages

    man = shutil.which("man")
    if man is None:
        pytest.skip("missing tool: man")
    shown = subprocess.run(
        [man, "kgroup-describe"],
        env={**project.env, "MANPATH": str(directory), "MANPAGER": "cat"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "kgroup describe" in shown.stdout, shown.stderr


def test_members_producers_and_admin_of_the_readme_run(cluster: Cluster) -> None:
    member, producer, _ = python_blocks()
    project = cluster.project
    project.run("kbroker", "topics", "create", "words", "-b", cluster.bootstrap)

    work = textwrap.indent(producer, "    ")
    program = f"import asyncio\n\nasync def main():\n{work}\nasyncio.run(main())\n"
    assert "words" in project.run("python", cluster.program("produce.py", program))

    process = project.begin("python", "-u", cluster.program("member.py", member))
    try:
        assert first_line(process, DEADLINE_S) == "0 0 four\n"
    finally:
        process.kill()
        process.communicate()
    groups = json.loads(
        project.run("kgroup", "list", "--zookeeper", cluster.zookeeper, "-o", "json")
    )
    assert "readers" in str(groups["items"])


def test_spark_reads_in_its_workers_what_kgroup_produced(cluster: Cluster) -> None:
    project = cluster.project
    project.run("kbroker", "topics", "create", "for-spark", "-b", cluster.bootstrap)
    project.run(
        *("kgroup", "produce", "--topic", "for-spark", "-b", cluster.bootstrap),
        stdin="one\ntwo\n",
    )

    reading = python_blocks()[2].replace(
        '"words")', '"for-spark").option("startingOffsets", "earliest")'
    )
    program = f"""
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
{reading}
query = words.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
query.awaitTermination()
print(sorted(bytes(row.value).decode() for row in spark.sql("select value from seen").collect()))
spark.stop()
"""
    assert project.run("python", cluster.program("query.py", program)) == "['one', 'two']\n"


def test_cleaner_finds_its_worker(cluster: Cluster) -> None:
    project = cluster.project
    settings = ("cleanup.policy=compact", "segment.bytes=2000", "min.cleanable.dirty.ratio=0.01")
    configs = [word for setting in settings for word in ("--config", setting)]
    project.run("kbroker", "topics", "create", "positions", *configs, "-b", cluster.bootstrap)
    for _ in range(2):
        project.run(
            *("kgroup", "produce", "--topic", "positions", "-b", cluster.bootstrap),
            *("--property", "parse.key=true", "--property", "key.separator=:"),
            stdin="".join(f"key:{number}\n" for number in range(100)),
        )

    log = Path(cluster.data, "broker-0.log")
    block_until(lambda: "positions-0: cleaned from" in log.read_text(), "the first pass")


def test_type_checker_of_a_user_sees_our_types(project: Project) -> None:
    (project.directory / "typed.py").write_text(
        "from kgroup import Admin, TopicPartition\n"
        "async def f(admin: Admin) -> None:\n"
        "    number: int = TopicPartition('a', 0).topic\n"
        "    await admin.create_topics(3)\n"
        "from kgroup.blocking import Producer\n"
        "Producer().snd('a')\n"
    )
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "typed.py"),
            *("--python-executable", project.command("python")[0]),
        ],
        cwd=project.directory,
        env=project.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "typed.py:3: error: Incompatible types" in checked.stdout, checked.stderr
    assert "typed.py:4: error: Argument 1" in checked.stdout
    assert 'typed.py:6: error: "Producer" has no attribute "snd"' in checked.stdout
    assert "Found 3 errors in 1 file" in checked.stdout


def test_sdist_is_the_same_twice_builds_the_same_wheel_and_passes_twine(
    wheel: Path, tmp_path: Path
) -> None:
    build = "import sys; from building.backend import build_sdist; print(build_sdist(sys.argv[1]))"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        subprocess.run(
            [sys.executable, "-c", build, str(tmp_path / name)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
    (sdist,) = (tmp_path / "first").iterdir()
    assert sdist.read_bytes() == (tmp_path / "second" / sdist.name).read_bytes()

    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert build_wheel(tmp_path / "wheel", unpacked).read_bytes() == wheel.read_bytes()

    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)],
        check=True,
        timeout=DEADLINE_S,
    )


def test_tests_of_the_guide_find_their_fixture_and_leave_no_process(project: Project) -> None:
    fixture, conftest, *_ = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL
    )
    directory = project.directory / "user_tests"
    directory.mkdir()
    (directory / "test_guide.py").write_text(fixture)
    (directory / "test_pids.py").write_text(PIDS_OF_CLUSTER)

    for text in ("", conftest):
        (directory / "conftest.py").write_text(text)
        project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory))
        pids = [int(word) for word in (project.directory / "pids").read_text().split()]
        assert len(pids) == (4 if text else 2)
        assert not [pid for pid in pids if lives(pid)]


def test_simulation_of_the_guide_runs_where_the_wheel_is_installed(project: Project) -> None:
    directory = project.directory / "simulated"
    directory.mkdir()
    write_toy(directory)
    correct_toy(directory)

    project.run(
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        f"{directory}/test_billing.py::test_every_order_is_billed[0]",
    )


def test_cluster_ends_with_a_test_run_that_is_killed(project: Project) -> None:
    directory = project.directory / "killed_tests"
    directory.mkdir()
    (project.directory / "pids").unlink(missing_ok=True)
    (directory / "test_killed.py").write_text(
        PIDS_OF_CLUSTER + "    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    run = project.begin("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory))
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == -signal.SIGKILL
    pids = [int(word) for word in (project.directory / "pids").read_text().split()]
    assert len(pids) == 2
    block_until(lambda: not any(lives(pid) for pid in pids), "the end of the cluster")


PIDS_OF_CLUSTER = """
def test_pids(kgroup_cluster):
    pids = [path.read_text() for path in kgroup_cluster.directory.glob("*.pid")]
    open("pids", "w").write(" ".join(pids))
"""
