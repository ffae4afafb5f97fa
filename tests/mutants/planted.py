"""Bugs of a replicated log, to be planted where we have none: the simulation must find each.

A *bug* is a few words of a source file and what stands there instead in a copy of the tree. Each is
one that Kafka had, or that a reader of its design might make. `make mutants` plants one at a time
and tells stories of a cluster (`tests/simulation`): the one that found it last, and then, because
what is drawn from a seed changes with the code, all from 0 on, until one is violated.
`tests/README.md` has what it took.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs

from tests.mutants.changed_copy import changed

WITHIN = 2000
"""Stories, at most, until a bug must have been found."""

REPLICATION = "broker/"
CONTROLLER = "broker/controller/"


@attrs.frozen
class Bug:
    """`words` stand once in `file`; with `instead` the story of `seed`, or another, is violated."""

    what: str
    file: str
    words: str
    instead: str
    seed: int = 0


def first_violated(copy: Path, bug: Bug, within: int = WITHIN) -> int | None:
    """The first seed found to tell of the bug, planted in this copy of the tree."""
    with changed(copy, bug.file, bug.words, bug.instead):
        for seeds in (str(bug.seed), f"0:{within}"):
            told = subprocess.run(
                [sys.executable, "-B", "-m", "tests.simulation", "--first", seeds],
                cwd=copy,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ).stdout
            if violated := re.search(r"^seed (\d+)$", told, re.MULTILINE):
                return int(violated[1])
    return None


BUGS: tuple[Bug, ...] = (
    # --- replication ----------------------------------------------------------------------------
    Bug(
        *("a follower cuts its log at its high watermark", REPLICATION + "truncation.py"),
        "    if end_offset == UNDEFINED_OFFSET:",
        "    if True:",
        seed=6,
    ),
    Bug(
        *("acks=all is answered when the leader has it", REPLICATION + "handlers/produce.py"),
        "reached = partition.high_watermark if part.all_in_sync else log.settled_end",
        "reached = log.settled_end",
    ),
    Bug(
        *("a produce that waits outlives the leadership", REPLICATION + "handlers/produce.py"),
        "        partition.require_leader()\n        log = partition.log",
        "        log = partition.log",
    ),
    Bug(
        *("an ISR counts before it is written", REPLICATION + "partition.py"),
        "in_sync = self.isr if self.proposed_isr is None else (*self.isr, *self.proposed_isr)",
        "in_sync = self.isr if self.proposed_isr is None else self.proposed_isr",
        seed=12,
    ),
    Bug(
        *("an ISR is written over whatever is there", REPLICATION + "isr_writer.py"),
        "partial(self.zk.set, path, data, zk_version)",
        "partial(self.zk.set, path, data, -1)",
        seed=5,
    ),
    Bug(
        *("an answer of an earlier leader is appended", REPLICATION + "replica_fetchers.py"),
        "if each is not None and self._is_current(each):",
        "if each is not None:",
    ),
    Bug(
        *("the high watermark goes back with a follower", REPLICATION + "isr.py"),
        "return max(current, min((log_end_offset, *ends)))",
        "return min((log_end_offset, *ends))",
        seed=1,
    ),
    Bug(
        *("a new leader shows the watermark it had as a follower", REPLICATION + "partition.py"),
        "return self.high_watermark >= self.epoch_start_offset",
        "return True",
    ),
    Bug(
        *("who has the watermark joins the ISR, whatever the epoch", REPLICATION + "isr.py"),
        "return follower.end_offset >= max(high_watermark, epoch_start_offset)",
        "return follower.end_offset >= high_watermark",
        seed=21,
    ),
    Bug(
        *("followers take no note of producers", "core_log/replicated_run.py"),
        "if isinstance(header, BatchHeader) and header.producer_id >= 0:",
        "if False:",
        seed=5,
    ),
    # --- controller -----------------------------------------------------------------------------
    Bug(
        *("a controller writes though another one reigns", CONTROLLER + "cluster_writer.py"),
        "Check(ControllerEpoch.path(), self.epoch_zk_version)",
        "Check(ControllerEpoch.path(), -1)",
        seed=8,
    ),
    Bug(
        *("a controller is elected before its epoch is raised", CONTROLLER + "election.py"),
        "_, stat = await retry_until_connected(zk, lambda: zk.multi(ops))",
        "await retry_until_connected(zk, lambda: zk.multi(ops[:1]))\n"
        "        raised = ControllerEpoch(epoch=epoch).encode()\n"
        "        stat = await zk.set(ControllerEpoch.path(), raised)",
    ),
    Bug(
        *("a bounce that no controller saw raises no epoch", CONTROLLER + "failover.py"),
        "in state.partition_states and _has_bounced(state, known)",
        "in state.partition_states and _has_bounced(state, known) and False",
        seed=5,
    ),
    Bug(
        *("a leader is elected of those not in sync", CONTROLLER + "leader_election.py"),
        "if unclean and clean is None",
        "if clean is None",
        seed=3,
    ),
)
