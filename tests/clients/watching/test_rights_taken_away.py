"""Groups are watched by somebody whose rights go while he watches: nothing was deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from broker.network.authorization import Resource
from broker.network.session import Principal
from clients.admin import Admin, NewTopic
from clients.watching.asked_offsets import ask_offsets
from clients.watching.commit_history import Commit
from clients.watching.group_watch import GroupWatch
from clients.watching.history import History
from protocol.acls import Operation, ResourceType
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.authorizer import AskingAuthorizer
from tests.stage.broker import Site

INVOICES, ORDERS = TopicPartition("invoices", 0), TopicPartition("orders", 0)
BILLING, AUDIT = "billing", "audit"
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


@attrs.define(eq=False)
class Stage:
    """A broker that keeps from everybody what is `denied`: resources, and groups by their kind."""

    admin: Admin
    denied: set[Resource | ResourceType] = attrs.field(
        factory=lambda: {Resource(TOPIC, OFFSETS_TOPIC)}
    )

    def may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if resource.kind is ResourceType.CLUSTER and operation is Operation.DESCRIBE:
            return GROUP not in self.denied
        if resource.kind is GROUP and GROUP in self.denied:
            return resource.name == AUDIT
        return resource not in self.denied

    async def offsets(self, watch: GroupWatch) -> dict[str, set[TopicPartition]]:
        """Look once more; return the partitions of each group."""
        await watch.refresh()
        return {group_id: set(group.offsets) for group_id, group in watch.groups.items()}


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Stage]:
    """Two groups have committed: billing in two topics, audit in one."""
    authorizer = AskingAuthorizer(lambda *asked: stage.may(*asked))
    settings = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
    site = Site(tmp_path, authorizer=authorizer)
    async with site.running(1, **settings) as broker, Admin(broker.bootstrap) as admin:
        stage = Stage(admin)
        await admin.create_topics([NewTopic(p.topic, 1, 1) for p in (INVOICES, ORDERS)])
        one = OffsetAndMetadata(0)
        await admin.commit_group_offsets(BILLING, {INVOICES: one, ORDERS: one})
        await admin.commit_group_offsets(AUDIT, {INVOICES: one})
        yield stage


async def test_group_that_may_not_be_described_any_more_stays_and_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        watch = GroupWatch(stage.admin)
        before = {BILLING: {INVOICES, ORDERS}, AUDIT: {INVOICES}}
        assert (await stage.offsets(watch), watch.failures) == (before, [])

        stage.denied.add(GROUP)
        assert await stage.offsets(watch) == before
        hidden, refused = watch.failures
        assert (hidden.what, hidden.error) == ("groups", "GROUP_AUTHORIZATION_FAILED")
        assert (refused.what, refused.error) == (BILLING, "GROUP_AUTHORIZATION_FAILED")
        assert refused.message.endswith("ask for DESCRIBE on the group")
        assert watch.new_commits == []

        stage.denied.discard(GROUP)
        assert (await stage.offsets(watch), watch.failures) == (before, [])


async def test_group_that_is_deleted_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as stage:
        watch = GroupWatch(stage.admin)
        await watch.refresh()
        await stage.admin.delete_groups([BILLING])
        assert (await stage.offsets(watch), watch.failures) == ({AUDIT: {INVOICES}}, [])
        assert set(watch.group_read_at_ms) == {AUDIT}


async def test_offsets_of_a_topic_that_may_not_be_described_any_more_were_not_deleted(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as stage:
        watch = GroupWatch(stage.admin)
        before = await stage.offsets(watch)

        stage.denied.add(Resource(TOPIC, ORDERS.topic))
        assert await stage.offsets(watch) == before
        (refused,) = watch.failures
        assert (refused.what, refused.error) == (str(ORDERS), "TOPIC_AUTHORIZATION_FAILED")
        assert watch.new_commits == []

        await stage.admin.delete_group_offsets(BILLING, [INVOICES])
        assert (await stage.offsets(watch))[BILLING] == {ORDERS}
        assert [
            (commit.group, commit.topic_partition, commit.offset) for commit in watch.new_commits
        ] == [(BILLING, INVOICES, None)]


async def test_history_goes_on_without_a_deletion_of_what_may_not_be_described(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as stage:
        stage.denied.add(Resource(TOPIC, ORDERS.topic))
        await stage.admin.delete_group_offsets(BILLING, [INVOICES])
        recorded = [Commit(1, BILLING, *partition, 0) for partition in (INVOICES, ORDERS)]
        history = await ask_offsets(stage.admin, History({BILLING: recorded}, 0, ["f"]), [BILLING])
        assert [(commit.topic_partition, commit.offset) for commit in history.commits[BILLING]] == [
            (INVOICES, 0),
            (ORDERS, 0),
            (INVOICES, None),
        ]
