"""Bugs of a replicated log, to be planted where we have none: the simulation must find each.

A *bug* is a piece of code, and what stands in its place in a copy of the tree. Each is one that
Kafka had, or that a reader of its design might make. `make mutants` plants one at a time and tells
stories of a cluster (`tests/simulation`): the one that found it last, and then, because what is
drawn from a seed changes with the code, all from 0 on, until one is violated. `tests/README.md` has
what it took. Bugs of groups with members are in `planted_members`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs

from tests.mutants.changed_copy import changed
from tests.mutants.marks import find_remedies, without

WITHIN = 2000
"""Stories, at most, until a bug must have been found."""
WITHIN_OF_FAULTS = 300
"""The same for faults that were found from outside."""


@attrs.frozen
class Stories:
    """Arguments of Python that tell stories until one is violated, and the line that names it.

    `SEEDS` among them stands for those that are to be told; without it they are always the same.
    """

    arguments: tuple[str, ...]
    violated: str


SEEDS = "{seeds}"
CLUSTERS = Stories(("-m", "tests.simulation", "--first", SEEDS), r"^seed (\d+)$")
PAIRS = Stories(
    ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/groups/consumer/test_pair.py"),
    r"seed (\d+): ",
)
"""Consumers and their coordinator without I/O: those that `make test` tells."""
UNSEEN_BOUNCES = Stories(
    (*PAIRS.arguments[:-1], "tests/simulation/test_unseen_bounce.py"), r"seed (\d+): logs"
)
"""A leader that loses its power unseen: 336 stories of all faults in a row were none of that."""


@attrs.frozen
class Bug:
    """`code` stands in `place` (see `tests.mutants.places`); with `instead` the story of `seed`, or
    another, is violated."""

    what: str
    place: str
    code: str
    instead: str
    seed: int = 0
    stories: Stories = CLUSTERS


@attrs.frozen
class PlantedFault:
    """The marked remedies of a fault, all of them (`tests.mutants.marks`), are taken away."""

    fault: str
    stories: Stories = CLUSTERS
    seed: int = 0

    @property
    def what(self) -> str:
        """Return the name of the bug."""
        return self.fault


def first_violated_without(
    copy: Path, planted: PlantedFault, within: int = WITHIN_OF_FAULTS
) -> int | None:
    """Return the first seed found to tell of the fault, its remedies taken away in the copy."""
    lines: dict[Path, list[int]] = {}
    for remedy in find_remedies(copy):
        if remedy.fault == planted.fault:
            lines.setdefault(remedy.file, []).append(remedy.line)
    assert lines, f"no remedy is marked with {planted.fault}"

    sources = {file: file.read_text() for file in lines}
    try:
        for file, source in sources.items():
            file.write_text(without(source, *lines[file]))
        return _first_seed(copy, planted.stories, planted.seed, within)
    finally:
        for file, source in sources.items():
            file.write_text(source)


def first_violated(copy: Path, bug: Bug, within: int = WITHIN) -> int | None:
    """Return the first seed found to tell of the bug, planted in this copy of the tree."""
    with changed(copy, bug.place, bug.code, bug.instead):
        return _first_seed(copy, bug.stories, bug.seed, within)


def _first_seed(copy: Path, stories: Stories, seed: int, within: int) -> int | None:
    wanted = (str(seed), f"0:{within}") if SEEDS in stories.arguments else ("all",)
    for seeds in wanted:
        arguments = [seeds if argument == SEEDS else argument for argument in stories.arguments]
        told = subprocess.run(
            [sys.executable, "-B", *arguments],
            cwd=copy,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout
        if violated := re.search(stories.violated, told, re.MULTILINE):
            return int(violated[1])
    return None


BUGS: tuple[Bug, ...] = (
    # --- replication ----------------------------------------------------------------------------
    Bug(
        "a follower cuts its log at its high watermark",
        "broker.replication.truncation:decide_truncation",
        "end_offset == UNDEFINED_OFFSET",
        "True",
        seed=6,
    ),
    Bug(
        "acks=all is answered when the leader has it",
        "broker.handlers.produce:_is_done",
        "partition.high_watermark if part.all_in_sync else log.durable_end_offset",
        "log.durable_end_offset",
    ),
    Bug(
        "a produce that waits outlives the leadership",
        "broker.handlers.produce:_is_done",
        "partition.require_leader()",
        "",
    ),
    Bug(
        "an ISR counts before it is written",
        "broker.replication.partition:Partition.advance_high_watermark",
        "replica in self.maximal_isr",
        "replica in (self.proposed_isr or self.isr)",
        seed=12,
    ),
    Bug(
        "an ISR is written over whatever is there",
        "broker.replication.isr_writer:IsrWriter._write_once",
        "partial(self.zk.set, path, data, zk_version)",
        "partial(self.zk.set, path, data, -1)",
        seed=5,
    ),
    Bug(
        "a follower fetches on from its earlier leader",
        "broker.replication.replica_fetchers:ReplicaFetchers.stop",
        "loop.fetcher.remove(topic_partition)",
        "",
        seed=1,
    ),
    Bug(
        "the high watermark goes back with a follower",
        "broker.replication.isr:next_high_watermark",
        "max(current, min((log_end_offset, *ends)))",
        "min((log_end_offset, *ends))",
        seed=1,
    ),
    Bug(
        "a new leader shows the watermark it had as a follower",
        "broker.replication.partition:Partition.is_watermark_known",
        "self.high_watermark >= self.epoch_start_offset",
        "True",
    ),
    Bug(
        "who has the watermark joins the ISR, whatever the epoch",
        "broker.replication.isr:may_join",
        "max(high_watermark, epoch_start_offset)",
        "high_watermark",
        seed=21,
    ),
    Bug(
        "a replica that follows keeps its followers",
        "broker.replication.partition:Partition.take_state",
        "self.followers.clear()",
        "pass",
    ),
    Bug(
        "followers take no note of producers",
        "core_log.appending.replicated_run:ReplicatedRun.produced",
        "header.producer_id >= 0",
        "False",
        seed=5,
    ),
    # --- controller -----------------------------------------------------------------------------
    Bug(
        "a controller writes though another one was elected",
        "broker.controller.cluster_writer:ClusterWriter._multi",
        "Check(ControllerEpoch.path(), self.epoch_zk_version)",
        "Check(ControllerEpoch.path(), -1)",
        seed=11,
    ),
    Bug(
        "a controller is elected before its epoch is raised",
        "broker.controller.election:_stand",
        "_, stat = await retry_until_connected(zk, lambda: zk.multi(ops))",
        """
            await retry_until_connected(zk, lambda: zk.multi(ops[:1]))
            stat = await zk.set(ControllerEpoch.path(), ControllerEpoch(epoch=epoch).encode())
        """,
    ),
    Bug(
        "a bounce that no controller saw raises no epoch",
        "broker.controller.failover:_settle_all",
        "_has_bounced(state, leadership)",
        "False",
        stories=UNSEEN_BOUNCES,
    ),
    Bug(
        "a broker that comes later was never seen",
        "broker.controller.brokers:handle_brokers_changed",
        "state.brokers_seen.update(new)",
        "",
    ),
    Bug(
        "a leader is elected of those not in sync",
        "broker.controller.leader_election:offline_leader",
        "unclean and clean is None",
        "clean is None",
        seed=3,
    ),
)
