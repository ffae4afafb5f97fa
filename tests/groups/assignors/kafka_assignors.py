"""Kafka's own assignors, on a JVM that answers line by line (`java/Assignors.java`)."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from benchmarks.peer import fetch_jars
from groups.assignors.assignor import Assignments
from groups.assignors.claims import Claim
from groups.assignors.members import MemberSubscription
from protocol.consumer_protocol import (
    Assignment,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.stage.java_compiler import compile_java
from tests.stage.stock_kafka import jars
from tests.stage.waiting import DEADLINE_S
from zk.embedded import find_java

VERSION = "3.9.1"

_CLIENTS = (f"org.apache.kafka:kafka-clients:{VERSION}", "org.slf4j:slf4j-nop:1.7.36")
_SOURCE = Path(__file__).with_name("java") / "Assignors.java"
_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_NOTHING = "-"


class KafkaFailed(Exception):
    """An assignor of Kafka's failed; the message is that of its exception."""


class KafkaAssignors:
    """The assignors of kafka-clients; skips the test without Maven. Close it."""

    def __init__(self) -> None:
        libraries = jars(lambda: fetch_jars(f"kafka-clients-{VERSION}", _CLIENTS))
        class_path = compile_java(f"assignors-{VERSION}", [_SOURCE], libraries)
        command = [str(find_java()), *_OPTIONS, "-cp", class_path, "Assignors"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The program ends with its input.
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(DEADLINE_S)

    def assign(
        self, name: str, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignments:
        """Have Kafka's assignor share out the partitions."""
        counts = ",".join(f"{topic}={count}" for topic, count in partition_counts.items())
        subscriptions = [
            f"{member.member_id}={member.group_instance_id or _NOTHING}="
            f"{encode_subscription(member.subscription).hex()}"
            for member in members
        ]
        response = self._ask("assign", name, counts or _NOTHING, *subscriptions)
        pairs = [word.split("=") for word in response.split()]
        return {member: decode_assignment(bytes.fromhex(share)) for member, share in pairs}

    def user_data(self, name: str, claim: Claim | None) -> bytes | None:
        """Return the user data of a member that got an assignment."""
        words = ["-1", _NOTHING]
        if claim is not None:
            share = encode_assignment(Assignment(claim.partitions))
            words = [str(claim.generation_id), share.hex()]
        response = self._ask("user_data", name, *words)
        return None if response == _NOTHING else bytes.fromhex(response)

    def _ask(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Assignors.java ended; its standard error says why"
        if line.startswith("! "):
            raise KafkaFailed(line.strip("! \n"))
        return line.removesuffix("\n")
