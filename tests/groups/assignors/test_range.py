"""`range`: the scenarios of Kafka's RangeAssignorTest, and the order of members."""

from tests.groups.assignors.scenes import assign, member


def test_one_member_without_topics_gets_nothing() -> None:
    assert assign("range", "", member("c1", "")) == {"c1": ""}


def test_topic_that_does_not_exist_is_left_out() -> None:
    assert assign("range", "other:2", member("c1", "t")) == {"c1": ""}


def test_one_member_gets_the_topics_that_it_subscribes_to() -> None:
    assert assign("range", "t1:1 t2:2 other:3", member("c1", "t1 t2")) == {"c1": "t1-0 t2-0 t2-1"}


def test_one_partition_goes_to_the_first_of_two_members() -> None:
    shares = assign("range", "t:1", member("c1", "t"), member("c2", "t"))
    assert shares == {"c1": "t-0", "c2": ""}


def test_first_members_get_one_partition_more_of_every_topic() -> None:
    shares = assign("range", "t1:3 t2:3", member("c1", "t1 t2"), member("c2", "t1 t2"))
    assert shares == {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}


def test_each_topic_is_shared_among_its_own_subscribers() -> None:
    shares = assign(
        "range", "t1:3 t2:2", member("c1", "t1"), member("c2", "t1 t2"), member("c3", "t1")
    )
    assert shares == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_topic_that_is_named_twice_counts_once() -> None:
    shares = assign("range", "t:4", member("c1", "t t"), member("c2", "t"))
    assert shares == {"c1": "t-0 t-1", "c2": "t-2 t-3"}


def test_order_of_the_members_does_not_matter() -> None:
    shares = assign("range", "t:3", member("c2", "t"), member("c1", "t"))
    assert shares == {"c1": "t-0 t-1", "c2": "t-2"}


def test_static_members_come_first_by_instance_id() -> None:
    shares = assign(
        "range",
        "t:3",
        member("a", "t"),
        member("x", "t", group_instance_id="i2"),
        member("z", "t", group_instance_id="i1"),
    )
    assert shares == {"z": "t-0", "x": "t-1", "a": "t-2"}


def test_static_member_that_restarts_keeps_its_share() -> None:
    first = member("b-1", "t", group_instance_id="i1")
    restarted = member("z-9", "t", group_instance_id="i1")
    other = member("c-1", "t", group_instance_id="i2")
    before = assign("range", "t:3", first, other)
    after = assign("range", "t:3", other, restarted)
    assert after["z-9"] == before["b-1"]
    assert after["c-1"] == before["c-1"]


def test_member_ids_are_in_the_order_of_java() -> None:
    # By code points these two would be the other way round.
    shares = assign("range", "t:2", member("\ufffd", "t"), member("\U0001f600", "t"))
    assert shares == {"\U0001f600": "t-0", "\ufffd": "t-1"}
