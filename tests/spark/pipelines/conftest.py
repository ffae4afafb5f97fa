"""A broker whose topics have the first flights of 2013."""

from collections.abc import Iterator

import pytest

from examples.pipelines import load
from tests.spark.pipelines.flights import COUNT
from tests.stage.cluster import DevCluster


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of the module's own: the pipelines' topics have fixed names."""
    with DevCluster(tmp_path_factory.mktemp("dev")) as cluster:
        address = cluster.address("bootstrap")
        load.main(["--bootstrap-server", address, "--flights", str(COUNT)])
        yield address
