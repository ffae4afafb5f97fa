"""Stock clients that make transactions call by call, each in a process of its own.

A driver (`drivers/`) makes the calls that it reads, and answers each with a line. So a scenario is
written once, and played with each client.

| call | words |
|---|---|
| `producer` | a name, and settings as NAME=VALUE, `transactional.id` among them |
| `init`, `begin`, `flush`, `commit`, `abort`, `close` | the name of the producer |
| `send` | the producer, topic, partition, timestamp, and values; does not wait |
| `offset_of_group` | the producer, group, topic, partition, offset, leader epoch, metadata |
| `positions_of_consumer` | the producer, and the consumer whose positions and group it is about |
| `consumer` | a name, group, topic, and the most records of a poll |
| `poll`, `rewind`, `leave` | the name of the consumer; `rewind` goes back to what is committed |
| `read` | topic, isolation level, number of partitions, fewest bytes of a fetch |
| `end`, `lookup` | topic, isolation level; for `lookup` a timestamp; both of partition 0 |

A record is the word PARTITION/OFFSET/VALUE. An error has a kind, which is one for all clients.
"""

from __future__ import annotations

import functools
import select
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import attrs

from tests.interop.stock_consumers import java_driver, python_driver
from tests.stage.processes import ROOT

CALL_S = 120.0
"""No call of a scenario takes so long, whatever else the machine does."""

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@attrs.frozen
class Kind:
    """A stock client. `cannot` has the scenarios that it cannot express, each with the reason."""

    name: str
    command: Callable[[], list[str]] = attrs.field(repr=False)
    cannot: Mapping[str, str] = attrs.field(factory=dict, repr=False, eq=False)
    sends_leader_epochs: bool = True

    def __str__(self) -> str:
        return self.name


class CallRefused(Exception):
    """A call failed; `kind` says what that means to a program."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@attrs.define(eq=False)
class Transactor:
    """A client's process. Use it as a context manager."""

    kind: Kind
    bootstrap: str
    log_file: Path
    _process: subprocess.Popen[str] = attrs.field(init=False)

    def __enter__(self) -> Self:
        with self.log_file.open("w") as log:
            self._process = subprocess.Popen(
                [*self.kind.command(), self.bootstrap],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        # Producers that wait for something are not waited for.
        self._process.kill()
        self._process.communicate()

    def call(self, *words: object) -> list[str]:
        """Make a call; return the words of its result. Raises CallRefused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

        ready, _, _ = select.select([self._process.stdout], [], [], CALL_S)
        assert ready, f"{self.kind} does not answer: {words}"
        outcome, *answer = self._process.stdout.readline().rstrip("\n").split("\t")
        if outcome == "error":
            raise CallRefused(*answer)
        assert outcome == "ok", self.log_file.read_text()
        return answer


# ---- the kinds

JAVA_2_8 = Kind("java-2.8", functools.partial(java_driver, "Transactor", "2.8.2"))
JAVA_3_9 = Kind("java-3.9", functools.partial(java_driver, "Transactor", "3.9.1"))
LIBRDKAFKA = Kind(
    "librdkafka",
    functools.partial(python_driver, "transactor.librdkafka"),
    cannot={"copy_by_group_id": "it has offsets with the metadata of a group alone"},
)
AIOKAFKA = Kind(
    "aiokafka",
    functools.partial(python_driver, "transactor.aiokafka"),
    cannot={
        "copy_by_group_metadata": "it has offsets with the id of a group alone",
        "every_call_times_out_while_no_broker_runs": "its calls wait without a limit",
        "second_init_is_refused": "its start is no call of transactions",
        "batch_that_expires_costs_an_epoch": "it knows nothing of KIP-360: the error is its last",
        "init_that_is_not_written_costs_no_epoch": "its start waits without a limit",
        "expired_id_is_initialised_by_the_abort": "it knows nothing of KIP-360",
    },
    sends_leader_epochs=False,
)

KINDS = (JAVA_2_8, JAVA_3_9, LIBRDKAFKA, AIOKAFKA)
