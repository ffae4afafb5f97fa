"""The wheel of this checkout, in a project whose own packages have the names of ours."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import attrs
import pytest

from building.one_package import PACKAGES
from tests.stage.processes import ROOT

DEADLINE_S = 300.0


@attrs.frozen
class Project:
    """Somebody's project, with a virtual environment."""

    directory: Path
    environment: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of its programs: none leads to the checkout."""
        python = str(self.command("python")[0])
        return {**outside_of_checkout(), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}

    def command(self, program: str, *args: str) -> list[str]:
        """Return a command line of a program of its environment."""
        return [str(self.environment / "bin" / program), *args]

    def run(self, program: str, *args: str, stdin: str = "") -> str:
        """Run a program in the project to its end. Returns its output; a failure fails the test."""
        finished = subprocess.run(
            self.command(program, *args),
            cwd=self.directory,
            env=self.env,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def begin(self, program: str, *args: str) -> subprocess.Popen[str]:
        """Start a program in the project; the caller ends it."""
        return subprocess.Popen(
            self.command(program, *args),
            cwd=self.directory,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def outside_of_checkout() -> dict[str, str]:
    """Return the environment variables without the one that may lead to this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def pip(*args: str, **environment: str) -> None:
    """Run pip, which needs no network for what we ask."""
    finished = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *args],
        env={**outside_of_checkout(), **environment},
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def build_wheel(
    directory: Path, source: Path = ROOT, KGROUP_PURE: str = "1", **environment: str
) -> Path:
    """Build the wheel as anybody does, of this checkout if not of another source.

    It is the pure one if not asked otherwise. The setuptools is the one that is here.
    """
    pip(
        *("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(directory), str(source)),
        KGROUP_PURE=KGROUP_PURE,
        **environment,
    )
    (wheel,) = directory.glob("kgroup-*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the pure wheel."""
    return make_project(wheel, tmp_path_factory.mktemp("project"))


def make_project(wheel: Path, root: Path) -> Project:
    """Make a project with a wheel, and with packages of its own under all our names."""
    project = make_environment(root)
    python = project.command("python")[0]
    pip("--python", python, "install", "--no-deps", "--no-index", str(wheel))

    for package in PACKAGES:
        (project.directory / package).mkdir(parents=True)
        (project.directory / package / "__init__.py").write_text('OWNER = "the project"\n')
    return project


def make_environment(root: Path) -> Project:
    """Make an environment without our packages, and with those that they depend on."""
    project = Project(root / "code", root / "venv")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(project.environment)], check=True
    )

    # What we depend on comes from here. An editable install of ours does not: it is a .pth of its
    # own, and those have no effect in a directory that a .pth names.
    asking = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([project.command("python")[0], "-c", asking], text=True)
    Path(site.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return project
