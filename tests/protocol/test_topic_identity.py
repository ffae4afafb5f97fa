"""Which topics are the same, and which only have the same name."""

from __future__ import annotations

import uuid

import attrs
import pytest

from protocol.topic_identity import TopicIdentity, decode_id, derive_topic_id, encode_id

DERIVED = TopicIdentity(
    topic_id=derive_topic_id("c", "t", 100),
    is_pinned=False,
    topic_czxid=100,
    cluster_czxid=5,
    cluster_ctime_ms=1_400_000_000_000,
)
PINNED = attrs.evolve(DERIVED, is_pinned=True)
GIVEN = attrs.evolve(PINNED, topic_id=uuid.UUID(int=77).bytes)
AGAIN = attrs.evolve(DERIVED, topic_czxid=101, topic_id=derive_topic_id("c", "t", 101))
RESTORED = {"topic_czxid": 900, "cluster_czxid": 800}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (DERIVED, True),
        (PINNED, True),
        (AGAIN, False),
        (attrs.evolve(AGAIN, is_pinned=True), False),
        (attrs.evolve(GIVEN, topic_czxid=101), False),
    ],
    ids=["itself", "pinned since", "created again", "created again and pinned", "given an id"],
)
def test_topic_created_again_is_another_one(other: TopicIdentity, is_same: bool) -> None:
    assert DERIVED.is_same_topic(other) is is_same
    assert other.is_same_topic(DERIVED) is is_same


def test_id_that_a_controller_drops_or_gives_while_a_topic_lives_makes_no_other() -> None:
    assert GIVEN.is_same_topic(DERIVED)
    assert DERIVED.is_same_topic(GIVEN)
    assert PINNED.is_same_topic(GIVEN)


def test_zookeeper_restored_from_a_copy_has_the_same_topics() -> None:
    other_id = derive_topic_id("c", "t", 900)
    restored = attrs.evolve(DERIVED, topic_id=other_id, **RESTORED)
    assert DERIVED.is_same_topic(restored)
    assert PINNED.is_same_topic(restored)
    assert GIVEN.is_same_topic(attrs.evolve(GIVEN, **RESTORED))


def test_restore_is_seen_though_the_czxid_happens_to_be_the_same() -> None:
    other_id = derive_topic_id("c", "t", 900)
    restored = attrs.evolve(DERIVED, topic_id=other_id, topic_czxid=900, cluster_ctime_ms=7)
    assert DERIVED.is_same_topic(restored)


def test_pinned_ids_tell_topics_apart_after_a_restore_too() -> None:
    again = attrs.evolve(AGAIN, is_pinned=True, **RESTORED)
    assert not PINNED.is_same_topic(again)


@pytest.mark.fault("core-R1")
@pytest.mark.parametrize("beside_log", [DERIVED, PINNED, GIVEN], ids=["derived", "pinned", "given"])
def test_id_that_was_derived_for_a_copy_of_a_node_makes_no_other_topic(
    beside_log: TopicIdentity,
) -> None:
    restored = attrs.evolve(
        PINNED, topic_id=derive_topic_id("c", "t", 900), is_derived=True, **RESTORED
    )
    assert restored.is_same_topic(beside_log)


@pytest.mark.fault("core-R1")
def test_nodes_of_topics_that_somebody_put_back_are_of_the_same_topics() -> None:
    beside_log = attrs.evolve(PINNED, topics_czxid=7)
    put_back = attrs.evolve(AGAIN, topics_czxid=90, is_derived=True)
    assert put_back.is_same_topic(beside_log)
    assert not put_back.is_surely_another(beside_log)
    # Known in both, and the same; or not known of a log from before it was noted.
    assert not attrs.evolve(AGAIN, topics_czxid=7).is_same_topic(beside_log)
    assert not attrs.evolve(AGAIN, topics_czxid=7).is_same_topic(PINNED)
    assert attrs.evolve(AGAIN, topics_czxid=7).is_surely_another(PINNED)


def test_derived_id_is_a_uuid_that_differs_by_cluster_name_and_creation() -> None:
    ids = [
        derive_topic_id(cluster, topic, czxid)
        for cluster in ("c", "d")
        for topic in ("t", "u")
        for czxid in range(50)
    ]
    assert len(set(ids)) == len(ids)
    assert {uuid.UUID(bytes=topic_id).version for topic_id in ids} == {4}
    assert not any(encode_id(topic_id).startswith("-") for topic_id in ids)


def test_derived_id_is_the_same_in_every_version_of_kgroup() -> None:
    topic_id = derive_topic_id("rI0PvrWuTxmUcxWV8Zn3fA", "flights", 0x1_0000_0042)
    assert encode_id(topic_id) == "NF_SJwmVSEqMFAlmgCafcg"


@pytest.mark.parametrize(
    "text", [None, "", 7, "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "rI0P", "é" * 22]
)
def test_text_that_is_no_id_of_a_topic_is_none(text: object) -> None:
    assert decode_id(text) is None


def test_id_is_read_back_from_its_text() -> None:
    assert decode_id(encode_id(DERIVED.topic_id)) == DERIVED.topic_id
