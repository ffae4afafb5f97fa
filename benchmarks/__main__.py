"""`make bench`: start both brokers, measure every question, print the table and keep it.

    python -m benchmarks [--rounds N] [--seconds S] [--before PATH] [--keep] [QUESTION…]

A QUESTION is the name of a module here. results.json and RESULTS.md are written if all questions
were measured beside the peer; with --keep also the rows of a part of them, with their day. PATH is
a checkout of an earlier state with its virtual environment in `.venv`; it stands beside ours in the
questions `turns`, `calls`, `idle-costs` and `over-time`.

Ours is measured as it is imported: pure Python in a checkout. `make bench-compiled` measures the
compiled form: a copy in build/compiled (building/compiled.py), which gets files of its own
(`python -m benchmarks.results build/compiled/benchmarks/results.json` takes its rows over).
For some questions: `cd build/compiled && PYTHONPATH=$PWD ../../.venv/bin/python -m benchmarks …`.
"""

import contextlib
import datetime
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import click

from benchmarks import (
    acls,
    calls,
    catch_up,
    clients,
    commits,
    compaction,
    connections,
    consumers,
    controller_failover,
    coordinator_failover,
    down_conversion,
    fetch,
    flood,
    group_coordinator,
    idle_cluster,
    idle_costs,
    idle_partitions,
    kgroup_tool,
    large_group,
    large_transactions,
    latency,
    leader_failure,
    load_offsets,
    logins,
    look_up,
    many_processes,
    over_time,
    peer,
    produce,
    rebalance,
    recovery,
    replicated_produce,
    simulated,
    spark_read,
    spark_sink,
    startup,
    tls,
    transactions,
    turns,
    zookeeper_commits,
)
from benchmarks.brokers import (
    Broker,
    Side,
    make_earlier_side,
    make_our_side,
    start_broker,
    start_our_zookeeper,
)
from benchmarks.produce import COMPILED_AFTER_S
from benchmarks.results import ResultRow, load, merge, save
from benchmarks.rounds import Rounds
from benchmarks.table import Row, render
from protocol.version import COMPILED

QUIET_LOAD = 0.5

_SIDES = """\
A broker of ours is one event loop, so it works on one of these cores, but for its cleaner's \
processes and two threads; the peer's threads work on all. Both sides, and what drives them, \
share the machine. Spark's own source and sink, which run on the JVM, work with a broker of ours, \
as ours do."""
_REQUESTS = """\
Raw requests are encoded beforehand, C × N is C connections with N requests outstanding on each; \
loopback, one disk, replication factor 1 unless a row says 3."""


@attrs.frozen
class Arena:
    """The sides and their running brokers.

    `sides`: ours and, if there is one, the peer. `over_time`: ours and, if one is named, the
    earlier state.
    """

    sides: Sequence[Side]
    over_time: Sequence[Side]
    brokers: Sequence[Broker]
    directory: Path
    rounds: Rounds


QUESTIONS: dict[str, Callable[[Arena], Iterator[Row]]] = {
    "startup": lambda arena: startup.measure(arena.sides, arena.directory, arena.rounds),
    "connections": lambda arena: connections.measure(arena.brokers, arena.rounds),
    "produce": lambda arena: produce.measure(arena.brokers, arena.rounds),
    "metrics-port": lambda arena: produce.measure_metrics(
        arena.sides[0], arena.directory, arena.rounds
    ),
    "many-processes": lambda arena: many_processes.measure(
        arena.sides[0], arena.directory, arena.rounds
    ),
    "fetch": lambda arena: fetch.measure(arena.brokers, arena.rounds),
    "tls": lambda arena: tls.measure(arena.sides, arena.directory, arena.rounds),
    "logins": lambda arena: logins.measure(arena.sides, arena.directory, arena.rounds),
    "acls": lambda arena: acls.measure(arena.sides, arena.directory, arena.rounds),
    "flood": lambda arena: flood.measure(arena.brokers[0], arena.rounds),
    "down-conversion": lambda arena: down_conversion.measure(arena.brokers, arena.rounds),
    "clients": lambda arena: clients.measure(arena.brokers[0], arena.rounds),
    "commits": lambda arena: commits.measure(arena.brokers, arena.rounds),
    "transactions": lambda arena: transactions.measure(arena.brokers, arena.rounds),
    "large-transactions": lambda arena: large_transactions.measure(arena.brokers, arena.rounds),
    "members-join": lambda arena: group_coordinator.measure_joins(arena.brokers, arena.rounds),
    "heartbeats": lambda arena: group_coordinator.measure_heartbeats(arena.brokers, arena.rounds),
    "live-groups": lambda arena: group_coordinator.measure_live_groups(
        arena.sides, arena.directory, arena.rounds
    ),
    "member-restart": lambda arena: group_coordinator.measure_restarts(arena.brokers, arena.rounds),
    "large-group": lambda arena: large_group.measure(arena.rounds),
    "kgroup-tool": lambda arena: kgroup_tool.measure(arena.sides, arena.brokers[0], arena.rounds),
    "load-offsets": lambda arena: load_offsets.measure(arena.sides, arena.directory, arena.rounds),
    "compaction": lambda arena: compaction.measure(arena.sides, arena.directory, arena.rounds),
    "offsets-compaction": lambda arena: compaction.measure_commits(
        arena.sides, arena.directory, arena.rounds
    ),
    "latency": lambda arena: latency.measure(arena.sides[0], arena.directory, arena.rounds),
    "idle-partitions": lambda arena: idle_partitions.measure(arena.rounds),
    "look-up": lambda arena: look_up.measure(arena.directory, arena.rounds),
    "recovery": lambda arena: recovery.measure_crash(arena.sides, arena.directory, arena.rounds),
    "clean-start": lambda arena: recovery.measure_clean(arena.sides, arena.directory, arena.rounds),
    "rebalance": lambda arena: rebalance.measure(arena.brokers[0], arena.rounds),
    "coordinator-rebalance": lambda arena: consumers.measure_rebalance(
        arena.brokers[0], arena.rounds
    ),
    "coordinator-streams": lambda arena: consumers.measure_streams(arena.brokers[0], arena.rounds),
    "zookeeper-commits": lambda arena: zookeeper_commits.measure(
        arena.brokers[0].zookeeper, arena.rounds
    ),
    "replicated-produce": lambda arena: replicated_produce.measure(
        arena.sides, arena.directory, arena.rounds
    ),
    "leader-failure": lambda arena: leader_failure.measure(
        arena.sides, arena.directory, arena.rounds
    ),
    "controller-failover": lambda arena: controller_failover.measure(
        arena.sides, arena.directory, arena.rounds
    ),
    "coordinator-failover": lambda arena: coordinator_failover.measure(
        arena.sides, arena.directory, arena.rounds
    ),
    "transactions-failover": lambda arena: coordinator_failover.measure_transactions(
        arena.sides, arena.directory, arena.rounds
    ),
    "catch-up": lambda arena: catch_up.measure(arena.sides, arena.directory, arena.rounds),
    "idle-cluster": lambda arena: idle_cluster.measure(arena.sides, arena.directory, arena.rounds),
    "turns": lambda arena: turns.measure(arena.over_time, arena.directory, arena.rounds),
    "over-time": lambda arena: over_time.measure(arena.over_time, arena.directory, arena.rounds),
    "calls": lambda arena: calls.measure(arena.over_time, arena.directory),
    "idle-costs": lambda arena: idle_costs.measure(arena.over_time, arena.directory, arena.rounds),
    "simulated": lambda arena: simulated.measure(arena.rounds),
    "spark-read": lambda arena: spark_read.measure(arena.brokers[0], arena.directory, arena.rounds),
    "spark-sink": lambda arena: spark_sink.measure(arena.brokers[0], arena.rounds),
}


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds of each row and side.")
@click.option("--seconds", default=2.0, show_default=True, help="Length of each round.")
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="A checkout of an earlier state, with its .venv, to compare with.",
)
@click.option("--keep", is_flag=True, help="Keep the rows of QUESTIONS too, with their day.")
@click.argument("questions", nargs=-1, type=click.Choice(list(QUESTIONS)))
def main(
    rounds: int, seconds: float, before: Path | None, keep: bool, questions: tuple[str, ...]
) -> None:
    """Measure our speed beside stock Kafka's: same machine, same run, same requests.

    The form of ours is that of this tree: pure Python in a checkout, compiled in build/compiled
    after `make bench-compiled`.
    """
    if not sys.platform.startswith("linux"):
        raise click.ClickException("the benchmarks read /proc, so they run on Linux alone")

    # An installed command has its bytecode; without it, half of a start is compiling.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Before a broker starts: it inherits the limit.
    connections.raise_descriptor_limit()
    load_average, _, _ = os.getloadavg()
    if load_average > QUIET_LOAD:
        click.echo(
            f"This machine is busy (load average {load_average:.1f}): expect noise.", err=True
        )

    today = str(datetime.date.today())
    rows: list[ResultRow] = []
    failed: list[str] = []
    with start_arena(Rounds(rounds, seconds), before) as arena:
        for name in questions or QUESTIONS:
            click.echo(f"{name} …", err=True)
            measured: list[Row] = []
            try:
                measured.extend(QUESTIONS[name](arena))
            except Exception:
                # The other questions are measured all the same.
                failed.append(name)
                traceback.print_exc()

            # Rows from before a failure count too.
            rows += [ResultRow(row, name, today, COMPILED) for row in measured]
            click.echo(render(measured), err=True)

    click.echo(render([result.row for result in rows]))
    if failed:
        raise click.ClickException(f"these questions failed, see above: {', '.join(failed)}")

    # One side alone is no result to keep.
    if len(arena.brokers) > 1 and (keep or not questions):
        results = load()
        if not questions or not results.head:
            head = format_head(arena.rounds, load_average)
            results = attrs.evolve(results, head=head, day=today)

        # A compiled copy began with the figures of its original.
        old = [result for result in results.rows if result.is_compiled or not COMPILED]
        save(attrs.evolve(results, rows=merge(old, rows)))


@contextlib.contextmanager
def start_arena(rounds: Rounds, before: Path | None) -> Iterator[Arena]:
    """Start all sides in a temporary directory; stop them and delete it at the end."""
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="kgroup-benchmarks-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)

        # Our side, and its earlier state.
        zookeeper, address = start_our_zookeeper(directory / "our-zookeeper")
        stack.callback(zookeeper.stop)
        sides = [make_our_side(address)]
        earlier = [make_earlier_side(before, address)] if before else []
        over_time = [*sides, *earlier]

        # The peer.
        try:
            jars = peer.fetch_jars()
        except peer.PeerMissing as missing:
            click.echo(str(missing), err=True)
        else:
            zookeeper, address = peer.start_zookeeper(jars, directory / "peer-zookeeper")

            # Its data is deleted next, so a clean stop would be wasted time.
            stack.callback(zookeeper.stop, at_once=True)
            sides.append(peer.make_side(jars, address))

        # One broker of each side runs through all questions; some questions start more.
        brokers: list[Broker] = []
        for number, side in enumerate(sides):
            broker = start_broker(side, directory / f"broker-{number}", "benchmarks")
            stack.callback(broker.process.stop, at_once=True)
            brokers.append(broker)
        yield Arena(sides, over_time, brokers, directory, rounds)


def format_head(rounds: Rounds, load_average: float) -> str:
    """Format the head of RESULTS.md; `load_average` was measured before the start."""
    # Some architectures have no line of that name.
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    has_profile = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    form = "compiled" if COMPILED else "pure Python"
    made = "with" if has_profile else "without"
    paragraphs = (
        f"`make bench`, {datetime.date.today()}, on {os.cpu_count()} cores of {model}, "
        f"{platform.system()}, Python {platform.python_version()}, load average "
        f"{load_average:.1f} before it began. Ours is {form}, its interpreter built {made} PGO. "
        "A row with a day is from a run of its own on that day; the notes say where that had other "
        "rounds.",
        f"The peer is Apache {peer.NAME}, and where a question names two, the second one. {_SIDES}",
        f"Medians of {rounds.number} rounds of {rounds.seconds:g} s in which the sides took turns, "
        "least and most in brackets. Before its rounds each side is warmed up: for "
        f"{rounds.warm_up_s:g} s, or by one round where a round is so much work; and before that "
        f"by {COMPILED_AFTER_S:g} s of load for produce (also to three replicas), TLS, logins and "
        f"ACLs. {_REQUESTS}",
    )
    texts = [textwrap.fill(text, 100, break_on_hyphens=False) for text in paragraphs]
    return "# How fast it is, beside a named peer\n\n" + "\n\n".join(texts) + "\n"


if __name__ == "__main__":
    main()
