"""kafka-python's integration tests, from its source distribution.

The distribution has the tests, but neither `test/service.py`, which starts Kafka and is replaced by
a few lines since our brokers run already, nor the templates of Kafka's settings: its tests of
logins and of TLS start brokers of their own from these, and are left out.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Collection
from pathlib import Path

from tests.interop.builds import built, run
from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.interop.suites.suite import Results, Suite, read_junit, run_to_end

VERSION = "3.0.12"
_CODECS = ("lz4==4.4.5", "python-snappy==0.7.3", "cramjam>=2.6")
_TESTS = ("test_admin_integration", "test_consumer_integration", "test_producer_integration")

_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        pass

    def start(self):
        pass

    stop = open = close = dump_logs = start


class SpawnedService:
    pass
"""


def _prepare() -> Path:
    def build(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet"]
        source = ("download", "--no-deps", "--no-binary", ":all:", f"kafka-python=={VERSION}")
        run([*pip, *source], directory)
        run([*pip, "install", "--target", "codecs", *_CODECS], directory)
        (archive,) = directory.glob("*.tar.gz")
        run(["tar", "xzf", archive.name], directory)
        (tests,) = directory.glob("kafka_python-*/test")

        # Python has a package of this name, which goes before a folder without this file.
        (tests / "__init__.py").touch()
        (tests / "service.py").write_text(_SERVICE)

    recipe = "".join([VERSION, *_CODECS, _SERVICE, inspect.getsource(build)])
    return built("suite-kafka-python", [], build, recipe=recipe)


def _run(built: Path, brokers: SuiteBrokers, directory: Path, names: Collection[str]) -> Results:
    env = os.environ | {
        "KAFKA_VERSION": "2.8.2",
        "KAFKA_URI": f"tcp://{brokers.bootstrap}",
        "KAFKA_ROOT": str(built),  # some folder that is there
        "PYTHONPATH": str(built / "codecs"),
    }
    files = [f"test/integration/{name}.py" for name in _TESTS]
    tests = [f"test/integration/{name.replace('::', '.py::')}" for name in names]
    report = directory.resolve() / "junit.xml"
    # Its own options ask for a plug-in.
    options = ("-o", "addopts=", "-o", "log_level=WARNING", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *(tests or files)]
    (source,) = built.glob(f"kafka_python-{VERSION}")
    run_to_end(command, source, env, directory / "pytest.log")
    return read_junit(report)


KAFKA_PYTHON = Suite(
    name="kafka-python",
    # As in the templates of its own brokers.
    wanted=Wanted(
        settings={
            "num.partitions": "4",
            "group.min.session.timeout.ms": "1000",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    ),
    prepare=_prepare,
    run=_run,
    passes=51,
)
