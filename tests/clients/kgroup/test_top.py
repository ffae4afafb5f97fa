"""`kgroup top` on a real broker: one table without a terminal, and keys in a pseudo-terminal."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from clients.admin import Admin
from clients.groups.group_facts import CoordinatorFacts, GroupFacts, LogOffsets
from clients.kgroup.top import Screen, Snapshot
from clients.watching.top_view import View, group_row
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from tests.stage.terminal import read_until
from tests.stage.waiting import DEADLINE_S

GROUP = "topmost"
LAG = 5000
LEAVE_SCREEN = "\x1b[?1049l"
"""Ends the alternate screen, which gives back what the terminal showed before."""


def make_group(cluster: DevCluster) -> None:
    """Make a group that has read one message, and has a larger lag than those of other tests."""
    cluster.run("kbroker", "topics", "create", "toppings", "--partitions", "1")
    cluster.run("kgroup", "produce", "--topic", "toppings", stdin="a\n" * (LAG + 1))
    consumed = cluster.run(
        *("kgroup", "consume", "--topic", "toppings", "--group", GROUP, "--max-messages", "1"),
        *("--membership", "coordinator", "--from-beginning"),
    )
    assert consumed.returncode == 0, consumed.stderr


def test_without_a_terminal_one_table_is_printed(dev_cluster: DevCluster) -> None:
    make_group(dev_cluster)
    # Groups of other tests, which may not be readable, decide the exit code.
    printed = dev_cluster.run("kgroup", "top", "-o", "json")
    rows = {row["group"]: row for row in json.loads(printed.stdout)["items"]}
    assert (rows[GROUP]["lag"] >= LAG, rows[GROUP]["state"]) == (True, "Empty")
    assert dev_cluster.run("kgroup", "top").stdout.startswith("GROUP ")


@pytest.mark.fault("users-21")
def test_a_terminal_that_cannot_go_back_gets_one_table(dev_cluster: DevCluster) -> None:
    make_group(dev_cluster)
    with top_in_terminal(dev_cluster, terminal_type="dumb") as (process, terminal):
        assert "\x1b[?1049h" not in read_until(terminal, GROUP)
        # Groups of other tests may not be readable.
        assert process.wait(DEADLINE_S) in (0, 1)


def screen_of(width: int, snapshot: Snapshot, **view: Any) -> list[str]:
    """Return the lines of a screen."""
    return Screen(20, width, snapshot, View(**view)).render().plain.splitlines()


def test_what_does_not_fit_is_seen_to_be_cut_and_the_lag_always_fits() -> None:
    partition = TopicPartition("topic-with-a-long-name", 0)
    offsets = {partition: OffsetAndMetadata(1_000_000_000)}
    facts = GroupFacts("g", coordinator=CoordinatorFacts("Empty", offsets=offsets))
    logs = {partition: LogOffsets(0, 1_123_456_789)}
    snapshot = Snapshot({"g": facts}, logs, [group_row(facts, logs, 0, 1.0)], at_s=1.0)

    title, columns, row, _ = screen_of(50, snapshot)
    assert title == "1 groups by lag"
    assert columns.split()[:2] == ["GROUP", "LAG"]
    assert row.split()[:2] == ["g", "123456789"]
    assert columns.endswith("…")
    _, columns, row, _ = screen_of(80, snapshot, group="g")
    assert row.split()[1:5] == ["0", "1000000000", "1123456789", "123456789"]
    assert screen_of(80, snapshot, group="h")[0] == "group h is gone"
    assert screen_of(80, Snapshot())[0] == "reading all groups"


@contextlib.contextmanager
def top_in_terminal(
    cluster: DevCluster, *options: str, width: int = 160, terminal_type: str = "xterm"
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `kgroup top` in a pseudo-terminal; gives the process, and the terminal's other end."""
    terminal, inside = pty.openpty()
    set_width(terminal, width)
    process = subprocess.Popen(
        command_line("kgroup", "top", "--interval", "0.5", *options),
        cwd=ROOT,
        # The size is the terminal's, whatever this process has been told of another one.
        env={**cluster.env, "TERM": terminal_type, "COLUMNS": "", "LINES": ""},
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def set_width(terminal: int, width: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))


def test_keys_sort_look_into_a_group_and_quit(dev_cluster: DevCluster) -> None:
    make_group(dev_cluster)
    with top_in_terminal(dev_cluster) as (process, terminal):
        read_until(terminal, GROUP)
        os.write(terminal, b"n")
        read_until(terminal, "groups by group")
        os.write(terminal, b"l")
        read_until(terminal, "groups by lag")
        os.write(terminal, b"\n")
        read_until(terminal, "LOG-END-OFFSET")
        os.write(terminal, b"q")
        assert process.wait(DEADLINE_S) == 0


def test_interrupt_ends_it_and_gives_the_terminal_back(dev_cluster: DevCluster) -> None:
    with top_in_terminal(dev_cluster) as (process, terminal):
        read_until(terminal, "groups by lag")
        assert not is_echoing(terminal)
        process.send_signal(signal.SIGINT)

        shown = read_until(terminal, LEAVE_SCREEN)
        assert process.wait(DEADLINE_S) == 0
        assert "Traceback" not in shown
        assert is_echoing(terminal)


def test_a_wider_terminal_is_used_at_once(dev_cluster: DevCluster) -> None:
    with top_in_terminal(dev_cluster, "--interval", "600", width=40) as (process, terminal):
        assert "q quit" not in read_until(terminal, "groups by lag")
        set_width(terminal, 100)
        # It is not the terminal's own session, which would get the signal.
        process.send_signal(signal.SIGWINCH)
        read_until(terminal, "q quit")


def is_echoing(terminal: int) -> bool:
    """Return whether the terminal shows what is typed."""
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_quit_is_honoured_while_a_broker_is_silent(dev_cluster: DevCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = ("-b", address, "--timeout", "600000")
        with top_in_terminal(dev_cluster, *options) as (process, terminal):
            read_until(terminal, "reading all groups")
            asker, _ = silent.accept()
            with asker:
                os.write(terminal, b"q")
                assert process.wait(DEADLINE_S) == 0


def test_keys_work_among_a_thousand_groups(dev_cluster: DevCluster) -> None:
    dev_cluster.run("kbroker", "topics", "create", "crowded", "--partitions", "1")
    bootstrap = dev_cluster.address("bootstrap")
    # Sorted by name, they come before the groups of other tests.
    names = [f"!crowd-{number:04}" for number in range(1000)]

    async def commit_all() -> None:
        committed = {TopicPartition("crowded", 0): OffsetAndMetadata(0)}
        async with Admin(bootstrap) as admin:
            for begin in range(0, len(names), 100):
                part = names[begin : begin + 100]
                await asyncio.gather(*(admin.commit_group_offsets(n, committed) for n in part))

    async def delete_all() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_groups(names)

    asyncio.run(commit_all())
    try:
        # Looks follow one another, so that keys come while groups are read.
        with top_in_terminal(dev_cluster, "--interval", "0.1") as (process, terminal):
            read_until(terminal, "groups by lag")
            os.write(terminal, b"n")
            read_until(terminal, "groups by group")
            read_until(terminal, "!crowd-0000")
            os.write(terminal, b"l")
            read_until(terminal, "groups by lag")
            os.write(terminal, b"q")
            assert process.wait(DEADLINE_S) == 0
    finally:
        asyncio.run(delete_all())
