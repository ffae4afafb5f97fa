"""Measure the group coordinator: members join, send heartbeats, rest, and restart.

The members are played (`played_members`), by the same program on both sides. A group does not wait
for more members when it begins (`group.initial.rebalance.delay.ms=0`).
"""

import contextlib
import itertools
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Broker, Side, start_broker
from benchmarks.load import Address, FrameCounter, LoadError, connect
from benchmarks.played_members import (
    Lines,
    PlayedGroup,
    PlayedMember,
    check_alive,
    encode,
    found_groups,
    open_lines,
)
from benchmarks.process import Process
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most

JOINING = 1000
JOINING_HEARTBEAT_S = 0.1

LINES = 8
OUTSTANDING = 5

LIVE_GROUPS = 10_000
LIVE_LINES = 64
LIVE_HEARTBEAT_S = 3.0
"""The default of `heartbeat.interval.ms`."""
LIVE_WARM_UP_S = 30.0
LIVE_S = 20.0
SETTLED_AFTER_S = 3.0

RESTARTING = 50
RESTART_HEARTBEAT_S = 0.2
RESTART_S = 0.5
"""Time between the end of the client and its next JoinGroup."""
AFTERMATH_S = 0.5

_TICK_S = 0.001
_RECEIVE_BYTES = 65536
_BYTES_A_KB = 1000

_group_numbers = itertools.count()


# ---- many join at once


def measure_joins(
    brokers: Sequence[Broker], rounds: Rounds, members: int = JOINING
) -> Iterator[Row]:
    """Yield a row of the seconds until all members have the assignments of one generation.

    A member that was early hears of the others by its next heartbeat.
    """
    contestants = [partial(_join, broker, members) for broker in brokers]
    (seconds,) = alternate(contestants, rounds)
    yield Row(f"{members:,} members join at once, until all are synced", "s", at_most(1), seconds)


def _join(broker: Broker, members: int, _: float) -> tuple[float]:
    with _playing(broker) as lines:
        group = _new_group(lines, JOINING_HEARTBEAT_S)
        for _number in range(members):
            group.add()

        # All connections are open; the clock starts with the first request.
        began = time.perf_counter()
        for member in group.members:
            member.join()
        lines.run(lambda: group.is_whole)
        took_s = time.perf_counter() - began
        group.leave()
        return (took_s,)


# ---- heartbeats


def measure_heartbeats(brokers: Sequence[Broker], rounds: Rounds) -> Iterator[Row]:
    """Yield a row of requests a second; each connection has a group of its own."""
    contestants = [partial(_beat, broker) for broker in brokers]
    rate, cores = alternate(contestants, rounds)
    question = f"Heartbeat, {LINES} × {OUTSTANDING}"
    wanted = at_least(1.0, compiled=1.2, changed="from 0.6 on 2026-11-27: more was in reach")
    yield Row(question, "requests/s", wanted, rate, cores)


def _beat(broker: Broker, seconds: float) -> tuple[float, float]:
    with _playing(broker) as lines:
        groups = []
        for _ in range(LINES):
            group = _new_group(lines, LIVE_HEARTBEAT_S)
            group.add().join()
            groups.append(group)
        lines.run(lambda: all(group.is_whole for group in groups))

        members = [group.members[0] for group in groups]
        plans = [[encode(member.heartbeat())] for member in members]
        driven, cores = broker.drive(plans, OUTSTANDING, seconds)

        # Each heartbeat was one of a member, which is there still.
        check_alive(lines, members)
        for group in groups:
            group.leave()
        return driven.per_second, cores


# ---- groups at rest


def measure_live_groups(
    sides: Sequence[Side], directory: Path, rounds: Rounds, live: "Live | None" = None
) -> Iterator[Row]:
    """Yield rows of the cores that live groups take, and of the memory of a member.

    Ours grows by resident memory, the peer by what its heap holds after a full collection. Each
    round has a new broker of each side: memory that was used once would be used again.
    """
    live = live or Live()
    contestants = [partial(_live, side, directory, live) for side in sides]
    turns = [[contestant() for contestant in contestants] for _ in range(rounds.number)]
    cores, memory = (
        [tuple(figures[nth] for figures in of_side) for of_side in zip(*turns, strict=True)]
        for nth in (0, 1)
    )
    title = f"{live.groups:,} live groups of 2 members, {live.lines} connections"
    yield Row(f"{title}: CPU at rest", "cores", at_most(1), cores)
    yield Row(f"{title}: memory of a member", "KB", at_most(1), memory)


@attrs.frozen
class Live:
    """The number of groups and of their connections, and for how long they live."""

    groups: int = LIVE_GROUPS
    lines: int = LIVE_LINES
    warm_up_s: float = LIVE_WARM_UP_S
    seconds: float = LIVE_S


def _live(side: Side, directory: Path, live: Live) -> tuple[float, float]:
    name = f"live-{next(_group_numbers)}"
    broker = start_broker(side, directory / name, f"{directory.name}-{name}")
    try:
        with _playing(broker) as lines:
            time.sleep(SETTLED_AFTER_S)
            before = _used_bytes(broker.process)
            members = _found(lines, live)
            heartbeats = [encode(member.heartbeat()) for member in members]
            beat = partial(_beat_evenly, broker.address, heartbeats, live.lines)

            # The processor time of the code that a JVM has compiled by then.
            beat(live.warm_up_s)
            cpu_s = broker.process.cpu_s
            took_s = beat(live.seconds)
            cores = (broker.process.cpu_s - cpu_s) / took_s

            grown = _used_bytes(broker.process) - before
            check_alive(lines, members)
            return cores, grown / len(members) / _BYTES_A_KB
    finally:
        broker.process.stop(at_once=True)


def _found(lines: Lines, live: Live) -> list[PlayedMember]:
    members: list[PlayedMember] = []
    names = [f"live-group-{number:05}" for number in range(live.groups)]
    found_groups(lines, names, live.lines // 2, lambda group: members.extend(group.members))
    return members


def _used_bytes(process: Process) -> int:
    """Return resident memory, and for a JVM the bytes of all objects that are alive."""
    pid = process.child.pid
    program = Path(f"/proc/{pid}/exe").resolve()
    if program.name != "java":
        return process.resident_bytes

    # A histogram of live objects is preceded by a full collection.
    jcmd = str(program.with_name("jcmd"))
    histogram = subprocess.run(
        [jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    (total,) = [line for line in histogram.splitlines() if line.startswith("Total")]
    return int(total.split()[2])


def _beat_evenly(
    address: Address, heartbeats: Sequence[bytes], lines: int, seconds: float
) -> float:
    """Send each heartbeat every LIVE_HEARTBEAT_S, evenly; return the seconds that it took."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(lines)]
        return _send_evenly(sockets, heartbeats, len(heartbeats) / LIVE_HEARTBEAT_S, seconds)


def _send_evenly(
    sockets: Sequence[socket.socket], requests: Sequence[bytes], per_second: float, seconds: float
) -> float:
    frames = {connection.fileno(): (connection, FrameCounter()) for connection in sockets}
    buffer = memoryview(bytearray(_RECEIVE_BYTES))
    sent = answered = 0

    with select.epoll() as ready:
        for descriptor in frames:
            ready.register(descriptor, select.EPOLLIN)
        begins = now = time.perf_counter()
        while now < begins + seconds or answered < sent:
            # What is due by now, from one connection after the other.
            due = int(min(now - begins, seconds) * per_second)
            while sent < due:
                sockets[sent % len(sockets)].sendall(requests[sent % len(requests)])
                sent += 1
            for descriptor, _ in ready.poll(_TICK_S):
                connection, counter = frames[descriptor]
                received = connection.recv_into(buffer)
                if not received:
                    raise LoadError("the broker closed the connection")
                answered += counter.count(buffer[:received])
            now = time.perf_counter()
    return now - begins


# ---- a member restarts


def measure_restarts(
    brokers: Sequence[Broker], rounds: Rounds, members: int = RESTARTING
) -> Iterator[Row]:
    """Yield rows of rebalances, and of the seconds without consumption of a partition.

    Each member has one partition, which nobody consumes from the member's end, or from when it
    hears of a rebalance, until its next assignment. The figure is the mean of all partitions.
    """
    for kind, is_static in (("static", True), ("dynamic", False)):
        contestants = [partial(_restart, broker, members, is_static) for broker in brokers]
        rebalances, seconds = alternate(contestants, rounds)
        title = f"one member of {members} restarts, {kind}"
        wanted = at_most(0, "rebalances") if is_static else at_most(1)
        yield Row(title, "rebalances", wanted, rebalances)
        yield Row(f"{title}: a partition without consumption", "s", at_most(1), seconds)


def _restart(broker: Broker, members: int, is_static: bool, _: float) -> tuple[float, float]:
    with _playing(broker) as lines:
        group = _new_group(lines, RESTART_HEARTBEAT_S)
        for number in range(members):
            group.add(instance_id=f"instance-{number}" if is_static else None)
        for member in group.members:
            member.join()
        lines.run(lambda: group.is_whole)
        _rest(lines, AFTERMATH_S)
        # The end comes at the same place between the heartbeats of the others.
        _rest(lines, group.next_beat_s(0) - time.monotonic())
        generation_id = group.generation_id
        for member in group.members:
            member.idle_s = 0

        # The last one, which does not lead.
        restarting = group.members[-1]
        restarting.shut_down()
        _rest(lines, RESTART_S)
        restarting.start_again()
        lines.run(lambda: restarting.is_consuming and group.is_whole)

        # Nothing comes afterwards.
        _rest(lines, AFTERMATH_S)
        idle_s = sum(member.idle_s for member in group.members)
        rebalances = group.generation_id - generation_id
        group.leave()
        return float(rebalances), idle_s / members


def _rest(lines: Lines, seconds: float) -> None:
    """Let the members go on for so long."""
    ends = time.monotonic() + seconds
    lines.at(ends, lambda: None)
    lines.run(lambda: time.monotonic() >= ends)


# ---- what all need


@contextlib.contextmanager
def _playing(broker: Broker) -> Iterator[Lines]:
    # The first request for offsets creates the topic, before a clock starts.
    broker.read_offsets("benchmarks")
    with open_lines(broker.address) as lines:
        yield lines


def _new_group(lines: Lines, heartbeat_s: float) -> PlayedGroup:
    return PlayedGroup(f"members-{next(_group_numbers)}", lines, heartbeat_s)
