"""librdkafka's tests that need brokers, three of them: from the package of node-rdkafka, which has
all of librdkafka's sources.

They are run in their quick form, two at a time, without those that have known issues. Some call
Kafka's tools by the names of its scripts; these are made here, around the tools of stock Kafka.

0081_admin does not pass on stock 2.8.2, which refuses all of a request to change settings that has
a group among its resources; ours refuses the group alone, as later releases do.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Collection
from functools import partial
from pathlib import Path

import attrs

from tests.interop.builds import built, run, tool
from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.interop.suites.suite import Outcome, Results, Suite, run_to_end
from tests.stage.stock_kafka import command

PACKAGE = "node-rdkafka@3.6.1"
"""It has librdkafka 2.12.0."""

_TOOLS = {
    "kafka-topics.sh": "kafka.admin.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
}
_OUTCOMES = {
    "PASSED": Outcome.PASSED,
    "FAILED": Outcome.FAILED,
    "SKIPPED": Outcome.SKIPPED,
    # It goes on when the others have ended; it did not start.
    "RUNNING": Outcome.FAILED,
    "DNS": Outcome.SKIPPED,
}


def _prepare() -> Path:
    npm, compiler = tool("npm", "npm"), tool("g++", "g++")
    make = [tool("make", "make"), f"CXX={compiler}", "-j2"]

    def build(directory: Path) -> None:
        run([npm, "pack", "--silent", "--ignore-scripts", PACKAGE], directory)
        (archive,) = directory.glob("*.tgz")
        run(["tar", "xzf", archive.name], directory)
        source = directory / "package" / "deps" / "librdkafka"
        # The package has files without their right to be run.
        for program in [source / "configure", source / "lds-gen.py", *source.glob("mklove/**/*")]:
            program.chmod(0o755)
        run(["./configure", "--disable-gssapi", "--disable-curl"], source)
        run([*make, "libs"], source)
        run([*make, "-C", "tests", "build"], source)

    recipe = PACKAGE + inspect.getsource(build)
    return built("suite-librdkafka", [], build, recipe=recipe) / "package/deps/librdkafka"


def _run(
    built: Path,
    brokers: SuiteBrokers,
    directory: Path,
    names: Collection[str],
    *,
    scenario: str = "default",
) -> Results:
    directory = directory.resolve()
    programs = directory / "bin"
    programs.mkdir(parents=True)
    for script, main in _TOOLS.items():
        program = programs / script
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command(main))} "$@"\n')
        program.chmod(0o755)

    config, report = directory / "test.conf", directory / "report.json"
    config.write_text(
        f"bootstrap.servers={brokers.bootstrap}\ntest.timeout.multiplier=3\n"
        # Each run has topics of its own.
        "test.topic.random=true\n"
    )
    env = os.environ | {
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_REPORT": str(report),
        "TEST_KAFKA_VERSION": "2.8.2",
        "KAFKA_PATH": str(directory),
        "BROKERS": brokers.bootstrap,
        "ZK_ADDRESS": brokers.zookeeper,
        "LD_LIBRARY_PATH": f"{built / 'src'}:{built / 'src-cpp'}",
    }
    if names:
        env["TESTS"] = ",".join(name[:4] for name in names)
    # CI would have three run at once.
    env.pop("CI", None)
    arguments = ["-p2", "-L", "-K", "-Q", "-s", scenario]
    log = directory / "test-runner.log"
    run_to_end([str(built / "tests" / "test-runner"), *arguments], built / "tests", env, log)

    return {
        name: _OUTCOMES[test["state"]]
        for name, test in json.loads(report.read_text())["tests"].items()
        if name != "<MAIN>"
    }


_SETTINGS = {
    # As trivup starts them, by which librdkafka's own CI does.
    "num.partitions": "4",
    "default.replication.factor": "3",
    "group.min.session.timeout.ms": "1000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_WANTED = Wanted(
    brokers=3,
    first_id=1,
    settings=_SETTINGS,
    settings_of={number: {"broker.rack": f"RACK{number}"} for number in (1, 2, 3)},
)

LIBRDKAFKA = Suite(
    name="librdkafka",
    wanted=_WANTED,
    prepare=_prepare,
    run=_run,
    passes=90,
    otherwise={
        "0092_mixed_msgver": "It reads none of what is in the format of 0.10: half of 60.",
    },
)

LIBRDKAFKA_WITHOUT_AUTO_CREATION = Suite(
    name="librdkafka-noautocreate",
    wanted=attrs.evolve(_WANTED, settings=_SETTINGS | {"auto.create.topics.enable": "false"}),
    prepare=_prepare,
    run=partial(_run, scenario="noautocreate"),
    passes=3,
    not_yet={
        "0107_topic_recreate": (
            "From 2.10 on it sees by its id alone that a topic was deleted and created with fewer "
            "partitions, and clients get no ids of topics: its producer keeps the old partitions."
        ),
    },
)
