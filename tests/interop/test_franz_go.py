"""franz-go's own tests of transactions, with three of our brokers.

A chain of three groups copies records in transactions, while members join, leave, and abort; with
each assignor of the client. Each record must come through once.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.interop.stock_consumers import go_tests
from tests.stage.cluster import DevCluster

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
TESTS = "^TestTxnEtl$"
RECORDS = 20_000
TIMEOUT_S = 600.0

pytestmark = pytest.mark.product


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("franz-go"), ("--brokers", "3")) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="as-it-is"),
        # Offsets that are in a transaction are waited for; the next one begins while one ends.
        pytest.param({"KGO_TEST_STABLE_FETCH": "1", "KGO_TEST_UNSAFE": "1"}, id="at-its-boldest"),
    ],
)
def test_franz_go_finds_each_record_once(cluster: DevCluster, more: dict[str, str]) -> None:
    environment = {
        "KGO_SEEDS": cluster.address("bootstrap"),
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    ran = subprocess.run(
        [*go_tests(PACKAGE), "-test.v", "-test.run", TESTS],
        env=os.environ | environment | more,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # A test for each of its assignors.
    assert ran.stdout.count("--- PASS: TestTxnEtl/") == 4, ran.stdout
