"""What all tests share: one real ZooKeeper per run, and a chroot in it for each test that asks."""

import os
import signal
from collections.abc import Generator, Iterator

import pytest

from tests.stage.cluster import DevCluster
from tests.stage.ensemble import Ensemble
from tests.stage.zookeeper import EMBEDDED, ZooKeepers
from zk.embedded import EmbeddedZooKeeper


def pytest_configure() -> None:
    """Have Ctrl-C mean something to the programs under test, though a shell that runs the tests in
    the background has it ignored by all that come of it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def zookeepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeepers]:
    """A ZooKeeper of each version, started when it is asked for."""
    servers = ZooKeepers(tmp_path_factory.mktemp("zookeeper"))
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def zookeeper_server(zookeepers: ZooKeepers) -> EmbeddedZooKeeper:
    """The server itself, for tests that stop its process. They must let it go on."""
    return zookeepers.server(EMBEDDED)


@pytest.fixture(scope="session")
def zookeeper(zookeeper_server: EmbeddedZooKeeper) -> str:
    """host:port of a running ZooKeeper. Tests share it: use `zk_chroot`, or names of your own."""
    return zookeeper_server.connect_string


@pytest.fixture
def zk_chroot(zookeepers: ZooKeepers) -> str:
    """host:port/chroot of a ZooKeeper tree that is empty, and this test's alone."""
    return zookeepers.chroot(EMBEDDED)


@pytest.fixture(scope="session")
def servers_of_the_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three servers; take `ensemble`, in which all of them run."""
    servers = Ensemble.of(EMBEDDED, tmp_path_factory.mktemp("ensemble"))
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def ensemble(servers_of_the_ensemble: Ensemble) -> Ensemble:
    """Three ZooKeeper servers and their leader. Tests may kill them, and share their tree."""
    servers_of_the_ensemble.start()
    return servers_of_the_ensemble


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI=true a test that skips for a "missing tool: …" fails: there, all must be there."""
    report = yield
    fail_if_tool_is_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips as a whole."""
    report = yield
    fail_if_tool_is_missing(report)
    return report


def fail_if_tool_is_missing(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip for a missing tool, if the environment says CI=true."""
    if os.environ.get("CI") == "true" and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if "missing tool:" in reason:
            report.outcome = "failed"
            report.longrepr = f"{reason} (with CI=true no tool may be missing)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(str(value))


@pytest.fixture(scope="session")
def lasting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A running `kbroker dev`, one broker."""
    with DevCluster(tmp_path_factory.mktemp("dev")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dev_cluster(lasting_cluster: DevCluster) -> DevCluster:
    """A running `kbroker dev`, one broker. Tests share it: use topics and groups of your own.

    Groups in ZooKeeper of the modules before are gone, for some of them are spoilt on purpose.
    """
    lasting_cluster.forget_groups()
    return lasting_cluster


@pytest.fixture(params=["stock", "ours"])
def either(request: pytest.FixtureRequest) -> str:
    """The address of a broker of either make: the module's fixture `stock` has the stock one."""
    if request.param == "stock":
        return str(request.getfixturevalue("stock"))
    cluster: DevCluster = request.getfixturevalue("dev_cluster")
    return cluster.address("bootstrap")
