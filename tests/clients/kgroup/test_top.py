"""`kgroup top` on a real broker: one table without a terminal, and keys in a pseudo-terminal."""

import json
import os
import pty
import select
import subprocess
import time

from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.waiting import DEADLINE_S

GROUP = "topmost"


def make_group(cluster: DevCluster) -> None:
    """Make a group that has read one message of three."""
    cluster.run("kbroker", "topics", "create", "toppings", "--partitions", "1")
    cluster.run("kgroup", "produce", "--topic", "toppings", stdin="a\nb\nc\n")
    consumed = cluster.run(
        *("kgroup", "consume", "--topic", "toppings", "--group", GROUP, "--max-messages", "1"),
        *("--membership", "coordinator", "--from-beginning"),
    )
    assert consumed.returncode == 0, consumed.stderr


def read_until(terminal: int, text: str) -> str:
    """Return what the terminal shows, up to `text`."""
    shown = ""
    ends_s = time.monotonic() + DEADLINE_S
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(ends_s - time.monotonic(), 0))
        assert ready, f"no {text!r} in {shown!r}"
        shown += os.read(terminal, 65_536).decode("utf-8", "replace")
    return shown


def test_without_a_terminal_one_table_is_printed(dev_cluster: DevCluster) -> None:
    make_group(dev_cluster)
    printed = dev_cluster.run("kgroup", "top", "-o", "json")
    assert printed.returncode == 0, printed.stderr
    rows = {row["group"]: row for row in json.loads(printed.stdout)["items"]}
    assert (rows[GROUP]["lag"], rows[GROUP]["state"]) == (2, "Empty")
    assert dev_cluster.run("kgroup", "top").stdout.startswith("GROUP ")


def test_keys_sort_look_into_a_group_and_quit(dev_cluster: DevCluster) -> None:
    make_group(dev_cluster)
    terminal, inside = pty.openpty()
    env = {**dev_cluster.env, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    process = subprocess.Popen(
        command_line("kgroup", "top", "--interval", "0.5"),
        cwd=ROOT,
        env=env,
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    try:
        read_until(terminal, GROUP)
        os.write(terminal, b"n")
        read_until(terminal, "groups by group")
        os.write(terminal, b"l")
        read_until(terminal, "groups by lag")
        os.write(terminal, b"\n")
        read_until(terminal, "LOG-END-OFFSET")
        os.write(terminal, b"q")
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
