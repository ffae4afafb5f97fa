"""`kbroker dev --metrics-port`: each broker has a port of its own."""

import urllib.request
from pathlib import Path

from protocol.settings import parse_properties
from tests.stage.cluster import DevCluster


def test_each_broker_of_a_dev_cluster_serves_its_figures_on_a_port_of_its_own(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path / "dev", ("--brokers", "2", "--metrics-port", "0")) as cluster:
        ports = []
        for broker_id in range(2):
            text = (cluster.directory / f"broker-{broker_id}.properties").read_text()
            ports.append(parse_properties(text)["kgroup.metrics.port"])
        assert len(set(ports)) == 2

        active = 0.0
        for port in ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
                for line in page.read().decode().splitlines():
                    if line.startswith("kafka_controller_kafkacontroller_activecontrollercount "):
                        active += float(line.split()[1])
        assert active == 1
