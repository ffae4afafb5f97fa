"""The examples in each command's help: none is refused as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker.kbroker.command import main as kbroker
from clients.kgroup.command import main as kgroup
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S

PROGRAMS = {"kgroup": kgroup, "kbroker": kbroker}
NOBODY = "127.0.0.1:1"
"""An address where nobody listens: what is asked there fails, and is no wrong usage."""

FILES = {
    "offsets.json": '{"kind": "export", "version": 1, "items": []}',
    "offsets.txt": "/consumers/analytics/offsets/flights/0:1\n",
    "plan.json": '{"version": 1, "partitions": []}',
    "topics.json": '{"version": 1, "topics": []}',
    "server.properties": "",
    "users.properties": "",
    "admin.properties": "",
    "flights.txt": "1\n",
    "keyed.txt": "k:1\n",
    "password": "secret\n",
    "00000000000000000000.index": "",
    "00000000000000000000.timeindex": "",
    "dev/broker-0/flights-3/00000000000000000000.log": "",
    "kafka/flights-3/00000000000000000000.log": "",
    "kafka/flights-0/00000000000000000000.log": "",
    "dev/broker-0/__consumer_offsets-7/00000000000000000000.log": "",
    "dev/broker-0.properties": "",
    "serve.token": "x" * 64,
}
ENDLESS = ("dev", "start", "zookeeper", "serve", "top", "record", "produce", "consume", "perf")
"""Commands that go on, or wait for brokers: only whether they are understood is looked at."""


def examples() -> Iterator[str]:
    """Yield each example of each command, in one line."""
    for name, main in PROGRAMS.items():
        for command in commands(main, click.Context(main, info_name=name)):
            text = (command.epilog or "").replace("\\\n", " ")
            lines = (line.strip() for line in text.splitlines() if line.startswith("  "))
            yield from (line for line in lines if line.partition(" ")[0] in PROGRAMS)


def commands(command: click.Command, context: click.Context) -> Iterator[click.Command]:
    """Yield a command, and those below it."""
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, context, info_name=name))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files that examples name, and no address in the environment."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KGROUP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KGROUP_BOOTSTRAP_SERVER", NOBODY)


@pytest.mark.parametrize("example", sorted(set(examples())))
def test_an_example_is_not_refused(example: str, tmp_path: Path) -> None:
    line = re.sub(r"(localhost|other):\d+", NOBODY, example.partition(" > ")[0])
    line = line.replace("/var/lib/kafka", "kafka").replace("~/.config/kgroup", str(tmp_path))
    line, _, stdin = line.partition(" < ")
    program, *words = shlex.split(line.partition(" && ")[0])
    takes_timeout = has_timeout(PROGRAMS[program], program, list(words))
    if words[0] in ENDLESS:
        return

    text = Path(stdin).read_text() if stdin else ""
    words += ["--timeout", "100"] if takes_timeout else []
    result = CliRunner().invoke(PROGRAMS[program], words, input=text)
    # It asks for a password, and there is no terminal here.
    if "there is no terminal" not in result.output:
        assert result.exit_code in (0, 1, 3), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output


def has_timeout(command: click.Command, name: str, words: list[str]) -> bool:
    """Return whether a command line takes --timeout. Raises UsageError if it is not understood."""
    context = command.make_context(name, words)
    if not isinstance(command, click.Group):
        return any("--timeout" in parameter.opts for parameter in command.params)
    if not context._protected_args:
        return False
    below, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    assert below is not None
    assert found is not None
    return has_timeout(found, below, rest)


@pytest.mark.fault("users-9", needs_no_remedy="the text of an example")
@pytest.mark.parametrize("example", [x for x in examples() if x.startswith("kgroup consume")])
def test_an_example_of_consume_consumes(example: str, dev_cluster: DevCluster) -> None:
    dev_cluster.run("kbroker", "topics", "create", "flights", "--partitions", "1")
    dev_cluster.run("kgroup", "produce", "--topic", "flights", stdin="one\n" * 20)
    line = example.replace("localhost:2181", dev_cluster.address("zookeeper"))
    words = [*shlex.split(line)[1:], "--timeout-ms", "1000"]
    result = subprocess.run(
        command_line("kgroup", *words),
        cwd=ROOT,
        env=os.environ | {"KGROUP_BOOTSTRAP_SERVER": dev_cluster.address("bootstrap")},
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (result.returncode, "one" in result.stdout) == (0, True), result.stderr
