"""Find what brokers leave out of a response, without a word, because the client may not see it.

ListGroups has the groups alone that the client may describe, OffsetFetch the offsets of topics
alone that it may describe, Metadata and ListTransactions such topics and ids alone, as in Kafka.
Whether something may be left out is asked by a name that nobody has: who may describe that may
describe all, but for what is denied by name.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from clients.admin import Admin
from clients.admin.acl_requests import describe_acls_request
from clients.command_line.output import Failure
from clients.errors import BrokerError, KgroupError
from clients.offset_requests import list_offsets_request, listed_offsets
from clients.transport.connection import Connection
from protocol.acls import AclFilter, PatternType, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.special_values import LATEST_TIME
from protocol.topic_partition import TopicPartition

NOBODYS_NAME = "kgroup-asks-for-rights"


async def find_hidden_groups(admin: Admin) -> list[Failure]:
    """Return a failure if lists of groups may lack some."""
    described = await _ask(admin, DescribeGroupsRequest(groups=[NOBODYS_NAME]))
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if described is None or refused not in {group.error_code for group in described.groups}:
        return []

    wanted = AclFilter(ResourceType.GROUP, NOBODYS_NAME, PatternType.LITERAL)
    # Who may describe the cluster gets all names, and an error for each group.
    acls = await _ask(admin, describe_acls_request(wanted))
    if acls is not None and acls.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return []

    text = (
        "you may not describe every group, and brokers do not list the others; ask for DESCRIBE on "
        "the cluster, or on all groups"
    )
    return [Failure("groups", refused.name, text)]


async def find_hidden_topics(admin: Admin) -> list[Failure]:
    """Return a failure if lists of topics, and of their partitions, may lack some."""
    if await may_describe_topic(admin):
        return []

    text = (
        "you may not describe every topic, and brokers do not list the others; ask for DESCRIBE on "
        "all topics"
    )
    return [Failure("topics", ErrorCode.TOPIC_AUTHORIZATION_FAILED.name, text)]


async def hidden_among(admin: Admin, topics: Iterable[str]) -> set[str]:
    """Return those of these topics that the client may not describe: their offsets are left out."""
    return {topic for topic in set(topics) if not await may_describe_topic(admin, topic)}


async def find_hidden_transactions(admin: Admin) -> list[Failure]:
    """Return a failure if lists of transactional ids may lack some."""
    described = await _ask(admin, DescribeTransactionsRequest(transactional_ids=[NOBODYS_NAME]))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if described is None or refused not in {s.error_code for s in described.transaction_states}:
        return []

    text = (
        "you may not describe every transactional id, and brokers do not list the others; ask for "
        "DESCRIBE on all transactional ids"
    )
    return [Failure("transactions", refused.name, text)]


async def find_hidden_offsets(admin: Admin, group_ids: Sequence[str]) -> list[Failure]:
    """Return a failure for each of these groups, which show no offset, if they may have some."""
    if not group_ids or await may_describe_topic(admin):
        return []

    text = (
        "you may not describe every topic, and it has no offset that you may see; if it has any, "
        "ask for DESCRIBE on their topics"
    )
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    return [Failure(group_id, refused, text) for group_id in group_ids]


def error_of_reading(topic: str, error: Exception) -> str:
    """Return the text of the error of a topic that was to be read.

    A refusal names both rights that this needs: who is given one would ask for the other next.
    """
    if isinstance(error, BrokerError) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"you may not read {topic}; ask for DESCRIBE and READ on the topic"
    return str(error)


async def may_describe_topic(admin: Admin, topic: str = NOBODYS_NAME) -> bool:
    """Return whether the client may describe a topic, there or not; by default, all topics."""
    # Unlike Metadata, this makes no topic on old brokers.
    partition = TopicPartition(topic, 0)
    response = await _ask(admin, list_offsets_request({partition: LATEST_TIME}))
    if response is None:
        return True
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    listed = listed_offsets(response).get(partition)
    return listed is None or listed.error_code != refused


async def _ask(admin: Admin, request: Any) -> Any:
    """Ask any broker, and only once: None if it does not say."""

    async def call(connection: Connection) -> Any:
        return await connection.call(request)

    try:
        return await admin.cluster.ask_any(call)
    except KgroupError:
        return None
