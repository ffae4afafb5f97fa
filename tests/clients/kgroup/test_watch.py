"""Commands that watch until Ctrl-C: that is no failure, in either program."""

import pytest

from tests.clients.serve.serve_stage import commit
from tests.stage.cluster import DevCluster
from tests.stage.processes import interrupt_after


@pytest.mark.parametrize(
    ("program", "args", "beginning"),
    [
        ("kgroup", ("list", "--watch", "0.1"), "watched"),
        ("kgroup", ("describe", "watched", "--watch", "0.1"), "GROUP"),
        ("kbroker", ("cluster", "describe", "--watch", "0.1"), "BROKER"),
    ],
)
def test_ctrl_c_ends_a_watch_with_zero(
    dev_cluster: DevCluster, program: str, args: tuple[str, ...], beginning: str
) -> None:
    commit(dev_cluster.address("bootstrap"), "watched-topic", ["watched"])
    process = dev_cluster.begin(program, *args)
    _, errors = interrupt_after(process, beginning)
    assert process.returncode == 0
    assert "Traceback" not in errors
