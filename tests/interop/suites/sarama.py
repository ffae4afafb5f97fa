"""sarama's functional tests, from its module: five brokers behind toxiproxy.

The tests cut connections by toxiproxy, which is built from its module, and stop and start brokers
by `docker-compose`, which is a script of ours here.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.interop.suites.go_tests import build_tests, select
from tests.interop.suites.suite import Results, Suite, read_go, run_to_end
from tests.stage.waiting import block_until

MODULE, VERSION = "github.com/IBM/sarama", "v1.43.3"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"

BROKERS = 5
# Its own, 29091 to 29095, are among those that other tests may have taken.
_ITS_PORTS, _PORTS = "29090+i", "19090+i"
_ADDRESSES = tuple(f"{HOST}:{19090 + number}" for number in range(1, BROKERS + 1))

_DOCKER_COMPOSE = """\
#!/bin/sh
# docker-compose stop|start kafka-N: have it done by who owns the brokers.
request="$BROKER_REQUESTS/$1.${2#kafka-}"
touch "$request"
while [ -e "$request" ]; do sleep 0.1; done
"""


def _change_ports(source: Path) -> None:
    file = source / "functional_test.go"
    text = file.read_text()
    assert text.count(_ITS_PORTS) == 3
    file.write_text(text.replace(_ITS_PORTS, _PORTS))


def _prepare() -> Path:
    return build_tests(
        MODULE, VERSION, ".", tags="functional", change=_change_ports, tools=[TOXIPROXY]
    )


def _run(built: Path, brokers: SuiteBrokers, directory: Path, names: Collection[str]) -> Results:
    requests, programs = directory / "requests", directory / "bin"
    requests.mkdir(parents=True)
    programs.mkdir()
    script = programs / "docker-compose"
    script.write_text(_DOCKER_COMPOSE)
    script.chmod(0o755)

    with _toxiproxy(built / "server", brokers, directory) as address:
        env = os.environ | {
            "KAFKA_VERSION": "2.8.2",
            "TOXIPROXY_ADDR": address,
            "BROKER_REQUESTS": str(requests),
            "PATH": f"{programs.resolve()}:{os.environ['PATH']}",
        }
        command = [
            str(built / "tests"),
            "-test.v",
            f"-test.run={select(names, '^TestFunc')}",
            "-test.timeout=40m",
        ]
        source = built / "source"
        meanwhile = partial(_perform, requests, brokers)
        return read_go(run_to_end(command, source, env, directory / "go.log", meanwhile))


@contextlib.contextmanager
def _toxiproxy(program: Path, brokers: SuiteBrokers, directory: Path) -> Iterator[str]:
    """Run it with a proxy to each broker until the end of the block; give its address."""
    (port,) = claim_ports(0, 1)
    address = f"http://{HOST}:{port}"
    command = [str(program), "-host", HOST, "-port", str(port)]
    process = spawn("toxiproxy", command, directory)

    def has_version() -> bool:
        process.check_alive()
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{address}/version").read())
        return False

    try:
        block_until(has_version, "toxiproxy serves")
        for listen, (broker_id, upstream) in zip(_ADDRESSES, brokers.ports.items(), strict=True):
            proxy = {
                "name": f"kafka{broker_id}",
                "listen": listen,
                "upstream": f"{HOST}:{upstream}",
                "enabled": True,
            }
            urllib.request.urlopen(f"{address}/proxies", json.dumps(proxy).encode())
        yield address
    finally:
        process.stop()


def _perform(requests: Path, brokers: SuiteBrokers) -> None:
    """Stop or start the brokers that the tests want stopped or started."""
    for request in sorted(requests.iterdir()):
        what, _, number = request.name.partition(".")
        (brokers.stop if what == "stop" else brokers.start)(int(number))
        request.unlink()


SARAMA = Suite(
    name="sarama",
    # As in its docker-compose.yml.
    wanted=Wanted(
        brokers=BROKERS,
        first_id=1,
        addresses=_ADDRESSES,
        settings={
            "default.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "auto.create.topics.enable": "false",
            "zookeeper.session.timeout.ms": "6000",
        },
        settings_of={number: {"broker.rack": str(number)} for number in range(1, BROKERS + 1)},
    ),
    prepare=_prepare,
    run=_run,
    passes=60,
)
