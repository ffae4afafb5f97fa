"""The tests of Go modules: built from a copy of the module, with what its own go.sum names."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tests.interop.builds import built, run, tool


def _leave(source: Path) -> None:
    pass


def build_tests(
    module: str,
    version: str,
    package: str,
    *,
    tags: str = "",
    change: Callable[[Path], None] = _leave,
    tools: Sequence[str] = (),
) -> Path:
    """Return a directory with the program `tests`, and `tools` (PATH@VERSION) beside it.

    `change` is given the copy before it is built.
    """
    go = tool("go", "golang-go")

    def build(directory: Path) -> None:
        # Outside of a module, so that it belongs to none.
        fetched = json.loads(
            run([go, "mod", "download", "-json", f"{module}@{version}"], directory)
        )
        source = directory / "source"
        shutil.copytree(fetched["Dir"], source, copy_function=shutil.copyfile)
        for folder in [source, *(path for path in source.rglob("*") if path.is_dir())]:
            folder.chmod(0o755)
        change(source)

        program = str(directory / "tests")
        run([go, "test", "-c", f"-tags={tags}", "-o", program, package], source)
        for wanted in tools:
            run(["env", f"GOBIN={directory}", go, "install", wanted], directory)

    name = f"suite-{module.replace('/', '-')}"
    recipe = "".join([version, package, tags, *tools, *map(inspect.getsource, (build, change))])
    return built(name, [], build, recipe=recipe)


def select(names: Collection[str], all_tests: str) -> str:
    """Return a pattern for `-test.run`: the tests with these names, or all."""
    tops = sorted({name.partition("/")[0] for name in names})
    return f"^({'|'.join(tops)})$" if tops else all_tests
