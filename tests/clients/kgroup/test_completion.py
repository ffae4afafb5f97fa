"""Completion as shells ask for it: by environment variables, and in shells that run."""

import asyncio
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from clients.admin import Admin
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.terminal import read_until
from tests.stage.waiting import DEADLINE_S, block_until


def complete(line: str, env: dict[str, str], program: str = "kgroup") -> list[str]:
    """Return what the last word of a command line may be."""
    words = line.split(" ")
    asked = subprocess.run(
        command_line(program),
        cwd=ROOT,
        env={
            **env,
            f"_{program.upper()}_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert asked.stderr == ""
    return [row.partition(",")[2] for row in asked.stdout.splitlines() if row]


@pytest.fixture(scope="module")
def cluster(dev_cluster: DevCluster) -> DevCluster:
    """The shared cluster, with a topic and a group in each store."""
    for name in ("completed-a", "completed-b"):
        dev_cluster.run("kbroker", "topics", "create", name, "--partitions", "1")
        dev_cluster.run("kgroup", "produce", "--topic", name, stdin="message\n")
    for membership in ("coordinator", "zookeeper"):
        consumed = dev_cluster.run(
            *("kgroup", "consume", "--topic", "completed-a", "--max-messages", "1"),
            *("--group", f"completing-{membership}", "--membership", membership),
            "--from-beginning",
        )
        assert consumed.returncode == 0, consumed.stderr

    async def commit() -> None:
        async with Admin(dev_cluster.address("bootstrap")) as admin:
            for group in ("completed:by:colons", "spaced out"):
                committed = {TopicPartition("completed-a", 0): OffsetAndMetadata(0)}
                await admin.commit_group_offsets(group, committed)

    asyncio.run(commit())
    return dev_cluster


@pytest.mark.parametrize(
    ("line", "program", "names"),
    [
        (
            "kgroup describe completing-",
            "kgroup",
            ["completing-coordinator", "completing-zookeeper"],
        ),
        ("kgroup --describe --group completing-c", "kgroup", ["completing-coordinator"]),
        ("kgroup migrate status completing-z", "kgroup", ["completing-zookeeper"]),
        ("kgroup consume --topic completed-", "kgroup", ["completed-a", "completed-b"]),
        ("kbroker topics describe completed-", "kbroker", ["completed-a", "completed-b"]),
        ("kbroker topics create completed-", "kbroker", []),
        ("kgroup simu", "kgroup", ["simulate"]),
    ],
)
def test_names_come_from_the_cluster(
    cluster: DevCluster, line: str, program: str, names: list[str]
) -> None:
    assert complete(line, cluster.env, program) == names


def test_the_address_on_the_line_is_the_one_that_is_asked(cluster: DevCluster) -> None:
    env = {**os.environ, "KGROUP_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    address = cluster.address("bootstrap")
    line = f"kgroup -b {address} describe completing-"
    assert complete(line, env) == ["completing-coordinator"]


def test_nobody_to_ask_completes_nothing_and_says_nothing() -> None:
    env = {**os.environ, "KGROUP_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    assert complete("kgroup describe any", env) == []
    assert complete("kgroup -c no-such-cluster describe any", env) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["kgroup", "kbroker"])
def test_a_script_for_each_shell_names_the_program(shell: str, program: str) -> None:
    printed = subprocess.run(
        command_line(program, "completion", shell),
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert printed.returncode == 0
    assert f"_{program.upper()}_COMPLETE" in printed.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both programs, which the scripts call by their names."""
    directory = tmp_path_factory.mktemp("programs")
    for name in ("kgroup", "kbroker"):
        *python, code = command_line(name)
        quoted = code.replace('"', '\\"')
        (directory / name).write_text(f'#!/bin/sh\nexec {" ".join(python)} "{quoted}" "$@"\n')
        (directory / name).chmod(0o755)
    return directory


SHELLS = {
    "bash": ("bash --norc", "source <({} completion bash)"),
    "zsh": ("zsh --no-rcs", "autoload -U compinit; compinit -u -D; source <({} completion zsh)"),
    "fish": ("fish --no-config", "{} completion fish | source"),
}
"""Shell -> how it is started, and how it gets the script of a program."""
TYPED = {
    "kgroup describe completing-z": "completing-zookeeper",
    "kgroup -b {b} describe completing-z": "completing-zookeeper",
    "kgroup reset any --topic=completed-b": "--topic=completed-b",
    "kgroup describe completed:by:c": "completed:by:colons",
    "kgroup describe spaced": "spaced out",
    "kbroker topics describe completed-b": "completed-b",
    "kgroup simu": "simulate",
}
"""A line, {b} for the cluster's address -> its last word after TAB."""


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_names_in_a_terminal(cluster: DevCluster, programs: Path, shell: str) -> None:
    begin, load = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"missing tool: {shell}")
    terminal, inside = pty.openpty()
    running = subprocess.Popen(
        ["setsid", "--ctty", *begin.split()],
        cwd=ROOT,
        env={
            **cluster.env,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TERM": "xterm",
            "EDITOR": "",
            "HOME": str(programs),
        },
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)

    def enter(text: str) -> str:
        # What is typed has no such end, and what is printed has.
        os.write(terminal, f"{text}; echo E''ND\n".encode())
        return read_until(terminal, "END\r\n")

    def last_word(line: str) -> str:
        # At the line's beginning, by Ctrl-A: print its words. Ctrl-E leads to its end.
        shown = enter(f"{line}\t\x01printf '<%s>' \x05")
        return shown.rpartition("><")[2].partition(">")[0]

    try:
        for program in ("kgroup", "kbroker"):
            enter(load.format(program))
        for line, word in TYPED.items():
            typed = line.format(b=cluster.address("bootstrap"))
            # On a busy machine a second may be too short.
            block_until(
                lambda typed=typed, word=word: last_word(typed) == word, f"{word} in {line}"
            )
    finally:
        running.kill()
        running.wait()
        os.close(terminal)
