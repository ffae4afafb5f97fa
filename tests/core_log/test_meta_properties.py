"""meta.properties: the broker and the cluster a directory belongs to."""

from __future__ import annotations

import pytest

from core_log.meta_properties import InconsistentMetaProperties, MetaProperties, agree

STORED_BY_KAFKA = b"#\n#Sat Nov 21 09:48:00 UTC 2020\ncluster.id=abc\nversion=0\nbroker.id=3\n"


def test_kafkas_file_is_read() -> None:
    assert MetaProperties.decode(STORED_BY_KAFKA) == MetaProperties(3, "abc")


def test_file_of_an_old_kafka_has_no_cluster_id() -> None:
    assert MetaProperties.decode(b"version=0\nbroker.id=3\n") == MetaProperties(3, None)


def test_blanks_at_the_ends_of_lines_do_not_count() -> None:
    stored = MetaProperties.decode(b"cluster.id=abc \nversion=0 \nbroker.id=3\t\n")
    assert stored == MetaProperties(3, "abc")


@pytest.mark.parametrize("meta", [MetaProperties(0, "a-b_C"), MetaProperties(1001)])
def test_what_is_written_is_read_back(meta: MetaProperties) -> None:
    assert MetaProperties.decode(meta.encode()) == meta


@pytest.mark.parametrize("text", [b"", b"version=1\nbroker.id=3\n", b"version=0\n"])
def test_unreadable_file_is_refused(text: bytes) -> None:
    with pytest.raises(InconsistentMetaProperties):
        MetaProperties.decode(text)


def test_unknown_ids_come_from_what_is_stored() -> None:
    stored = {"/a": MetaProperties(3), "/b": MetaProperties(3, "abc")}
    assert agree(stored, -1, None) == MetaProperties(3, "abc")


def test_nothing_stored_and_nothing_configured_is_unknown() -> None:
    assert agree({}, -1, None) == MetaProperties(-1, None)


@pytest.mark.parametrize(
    ("stored", "broker_id", "cluster_id"),
    [
        ([MetaProperties(3)], 4, None),
        ([MetaProperties(3), MetaProperties(4)], -1, None),
        ([MetaProperties(3, "abc")], 3, "xyz"),
        ([MetaProperties(3, "abc"), MetaProperties(3, "xyz")], -1, None),
    ],
)
def test_directory_of_another_broker_or_cluster_is_refused(
    stored: list[MetaProperties], broker_id: int, cluster_id: str | None
) -> None:
    with pytest.raises(InconsistentMetaProperties, match=r"^/[01]: .* is expected; "):
        agree({f"/{n}": meta for n, meta in enumerate(stored)}, broker_id, cluster_id)


def test_what_another_version_added_is_kept() -> None:
    stored = MetaProperties.decode(b"version=0\nbroker.id=3\nnode.id=3\nx\\:y=a\\ \\u00e4\\\\\n")
    assert stored == MetaProperties(3, None, {"node.id": "3", "x:y": "a \u00e4\\"})
    assert MetaProperties.decode(stored.encode()) == stored
