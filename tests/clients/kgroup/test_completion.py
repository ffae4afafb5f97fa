"""Completion as shells ask for it: by environment variables, and in a bash that runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S


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


def test_a_bash_that_ran_the_script_completes_a_group(cluster: DevCluster, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("missing tool: bash")

    # The script calls `kgroup` by its name.
    program = tmp_path / "kgroup"
    words = " ".join(f"'{word}'" for word in command_line("kgroup")[:2])
    code = command_line("kgroup")[2].replace('"', '\\"')
    program.write_text(f'#!/bin/sh\nexec {words} "{code}" "$@"\n')
    program.chmod(0o755)

    script = """
        eval "$(kgroup completion bash)"
        COMP_WORDS=(kgroup describe completing-z) COMP_CWORD=2
        $(complete -p kgroup | sed 's/.*-F \\([^ ]*\\) .*/\\1/') kgroup completing-z describe
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    ran = subprocess.run(
        [bash, "--norc", "-c", script],
        cwd=ROOT,
        env={**cluster.env, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (ran.stdout, ran.stderr) == ("completing-zookeeper\n", "")
