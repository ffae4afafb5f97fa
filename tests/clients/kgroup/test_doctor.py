"""`kgroup doctor` on real brokers whose cleaner works, or cannot."""

import asyncio
from pathlib import Path

from clients.admin import Admin
from tests.clients.kgroup.doctor_stage import (
    COMMITS,
    P0,
    P1,
    SETTINGS,
    commit,
    examine,
    find_the_spoiled_partition,
    wrong,
)
from tests.stage.cluster import DevCluster


def cluster(directory: Path, **changes: str) -> DevCluster:
    settings = SETTINGS | {name.replace("_", "."): value for name, value in changes.items()}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return DevCluster(directory, tuple(words))


def test_a_partition_that_cannot_be_cleaned_is_found_and_the_other_is_ok(tmp_path: Path) -> None:
    with cluster(tmp_path) as dev:
        bootstrap = dev.address("bootstrap")
        nothing = "there is no __consumer_offsets: no group has committed to Kafka yet"
        assert examine(bootstrap) == (0, {}, nothing)
        find_the_spoiled_partition(bootstrap, tmp_path / "broker-0")


def test_a_cleaner_that_is_off_is_told_by_setting_and_by_records(tmp_path: Path) -> None:
    async def write(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await commit(admin)

    with cluster(tmp_path, log_cleaner_enable="false") as dev:
        bootstrap = dev.address("bootstrap")
        asyncio.run(write(bootstrap))
        code, rows, _ = examine(bootstrap)
        assert (code, wrong(rows)) == (1, {"broker 0", P0, P1})
        row = rows[P0]
        assert (row["records"], row["keys"], row["dirty_ratio"]) == (COMMITS, 1, 1.0)
        assert "nothing was cleaned since" in row["why"]
        assert rows["g0"]["commits_per_s"] > 0

        # Tables of their own for settings, brokers, partitions and groups, then the verdict.
        done = dev.run("kgroup", "doctor")
        tables = done.stdout.split("\n\n")
        assert (done.returncode, len(tables)) == (1, 5)
        assert "LEADER" in tables[2]
        assert "COMMITS/S" in tables[3]
