"""`roundrobin`: the scenarios of Kafka's RoundRobinAssignorTest, and the order of members."""

from tests.groups.assignors.scenes import assign, member


def test_one_member_without_topics_gets_nothing() -> None:
    assert assign("roundrobin", "", member("c1", "")) == {"c1": ""}


def test_topic_that_does_not_exist_is_left_out() -> None:
    assert assign("roundrobin", "other:2", member("c1", "t")) == {"c1": ""}


def test_one_member_gets_the_topics_that_it_subscribes_to() -> None:
    shares = assign("roundrobin", "t1:1 t2:2 other:3", member("c1", "t2 t1"))
    assert shares == {"c1": "t1-0 t2-0 t2-1"}


def test_two_members_of_the_same_topics_take_turns_across_topics() -> None:
    shares = assign("roundrobin", "t1:3 t2:3", member("c1", "t1 t2"), member("c2", "t1 t2"))
    assert shares == {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}


def test_members_without_the_topic_are_skipped() -> None:
    shares = assign(
        "roundrobin", "t1:3 t2:2", member("c1", "t1"), member("c2", "t1 t2"), member("c3", "t1")
    )
    assert shares == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_turn_goes_on_behind_the_last_taker() -> None:
    shares = assign("roundrobin", "t1:1 t2:2", member("c1", "t2"), member("c2", "t1 t2"))
    assert shares == {"c1": "t2-0", "c2": "t1-0 t2-1"}


def test_static_members_come_first_by_instance_id() -> None:
    shares = assign(
        "roundrobin",
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
    before = assign("roundrobin", "t:3", first, other)
    after = assign("roundrobin", "t:3", other, restarted)
    assert after["z-9"] == before["b-1"]
