"""Kafka's command-line tools, many of them run by one JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from tests.stage.java_compiler import compile_java
from tests.stage.processes import ROOT
from tests.stage.stock_kafka import OPTIONS, QUIET, jars
from zk.embedded import find_java

_SOURCE = ROOT / "tests" / "jvm" / "ToolShell.java"
_END = "\0"


@attrs.define(eq=False)
class ToolShell:
    """The JVM, until the end of the block. `properties` are Java's (`-Dname=value`)."""

    directory: Path
    properties: Mapping[str, str] = attrs.field(factory=dict)
    _process: subprocess.Popen[str] = attrs.field(init=False)

    def __enter__(self) -> Self:
        classes = compile_java("tool-shell", [_SOURCE], jars())
        given = [f"-D{name}={value}" for name, value in self.properties.items()]
        with (self.directory / "tools.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(find_java()), *OPTIONS, QUIET, *given, "-cp", classes, "ToolShell"],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, main: str, *args: str) -> str:
        """Run a tool to its end; return what it printed. Raises AssertionError if it fails."""
        code, printed = self.try_to_run(main, *args)
        assert code == 0, printed
        return printed

    def try_to_run(self, main: str, *args: str) -> tuple[int, str]:
        """Run a tool to its end; return its exit code, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((main, *args)) + "\n")
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.startswith(_END):
                return int(line.removeprefix(_END)), "".join(printed)
            printed.append(line)
        raise AssertionError(f"the tools' JVM ended: {''.join(printed)}")
