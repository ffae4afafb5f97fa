"""Damage a log of a broker that runs."""

from protocol.records.entry import read_entry
from tests.stage.cluster import DevCluster


def damage_batch(cluster: DevCluster, topic: str, number: int) -> None:
    """Change a byte of a record in a batch of partition 0, in the broker's file."""
    (path,) = (cluster.directory / "broker-0" / f"{topic}-0").glob("*.log")
    buf = path.read_bytes()
    pos = 0
    for _ in range(number):
        header = read_entry(buf, pos, len(buf))
        assert header is not None
        pos += header.size

    header = read_entry(buf, pos, len(buf))
    assert header is not None
    with path.open("r+b") as file:
        file.seek(pos + header.size - 3)
        file.write(bytes([buf[pos + header.size - 3] ^ 1]))
