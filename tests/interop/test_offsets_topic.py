"""`kgroup doctor` on a stock broker."""

from pathlib import Path

from tests.clients.kgroup.doctor_stage import SETTINGS, find_the_spoiled_partition
from tests.stage.stock_kafka import stock_broker


def test_a_partition_that_a_stock_broker_cannot_clean_is_found(
    zk_chroot: str, tmp_path: Path
) -> None:
    with stock_broker(zk_chroot, tmp_path, SETTINGS) as bootstrap:
        find_the_spoiled_partition(bootstrap, tmp_path / "log")
