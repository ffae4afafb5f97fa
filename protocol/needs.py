"""Name the permissions that each request needs, in the words of ACLs (KIP-11).

NEEDS is the table of all APIs: the broker checks it (`broker.network.authorization`), and a client
that was refused finds there what to ask for.
"""

from collections.abc import Mapping
from enum import Enum

import attrs

from protocol.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen

REFUSALS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Refusal(Enum):
    """The consequence for a request, or a part of it, that is refused."""

    AT_ONCE = "dispatch responds with the error to the whole request"
    WHOLE = "the handler responds with the error to the whole request, or in all its entries"
    ENTRY = "the entry has the error, the others are served"
    OMITTED = "the entry is left out, without an error"
    SETTINGS = "the entry is served, its settings have the error"
    ENTRY_OR_OMITTED = "a named entry has the error; of all, it is left out"


@frozen
class Need:
    """A permission that a request needs.

    `instead` is a permission that makes up for it. `when` says which requests need it, if not all
    do. `code` is the error of a refusal, where it is not that of the type of resource.
    """

    operation: Operation
    kind: ResourceType
    refusal: Refusal
    instead: tuple[Operation, ResourceType] | None = None
    when: str = ""
    code: ErrorCode | None = None

    @property
    def error(self) -> ErrorCode:
        """The error of a refusal."""
        return REFUSALS[self.kind] if self.code is None else self.code


_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

_FROM_BROKERS = (Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.AT_ONCE),)
_ALTER_CLUSTER = (Need(Operation.ALTER, _CLUSTER, Refusal.AT_ONCE),)
_DESCRIBE_CLUSTER = (Need(Operation.DESCRIBE, _CLUSTER, Refusal.AT_ONCE),)
_MEMBER = (Need(Operation.READ, _GROUP, Refusal.AT_ONCE),)
_OWN_TRANSACTION = Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.AT_ONCE)
_CREATE_TOPIC = Need(Operation.CREATE, _TOPIC, Refusal.ENTRY, instead=(Operation.CREATE, _CLUSTER))
_ALTER_SETTINGS = (
    Need(Operation.ALTER_CONFIGS, _TOPIC, Refusal.ENTRY, when="of topics"),
    Need(Operation.ALTER_CONFIGS, _CLUSTER, Refusal.ENTRY, when="of brokers"),
)

NEEDS: Mapping[int, tuple[Need, ...]] = {
    # Records.
    ApiKey.PRODUCE: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="with transactional batches"),
        Need(Operation.WRITE, _TOPIC, Refusal.ENTRY),
    ),
    ApiKey.FETCH: (
        Need(Operation.READ, _TOPIC, Refusal.ENTRY, when="of consumers"),
        Need(
            Operation.CLUSTER_ACTION,
            _CLUSTER,
            Refusal.WHOLE,
            when="of followers",
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    ApiKey.LIST_OFFSETS: (Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY),),
    ApiKey.DELETE_RECORDS: (Need(Operation.DELETE, _TOPIC, Refusal.ENTRY),),
    ApiKey.DESCRIBE_PRODUCERS: (Need(Operation.READ, _TOPIC, Refusal.ENTRY),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(
            Operation.DESCRIBE,
            _TOPIC,
            Refusal.ENTRY,
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="with a transactional id"),
        Need(
            Operation.IDEMPOTENT_WRITE,
            _CLUSTER,
            Refusal.WHOLE,
            # On any topic (KIP-679).
            instead=(Operation.WRITE, _TOPIC),
            when="without one",
        ),
    ),
    # Transactions.
    ApiKey.ADD_PARTITIONS_TO_TXN: (_OWN_TRANSACTION, Need(Operation.WRITE, _TOPIC, Refusal.WHOLE)),
    ApiKey.ADD_OFFSETS_TO_TXN: (_OWN_TRANSACTION, Need(Operation.READ, _GROUP, Refusal.WHOLE)),
    ApiKey.END_TXN: (_OWN_TRANSACTION,),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Need(
            Operation.DESCRIBE,
            _TRANSACTIONAL_ID,
            Refusal.ENTRY,
            # Of leaders that verify transactions.
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
        Need(
            Operation.DESCRIBE,
            _TOPIC,
            Refusal.OMITTED,
            instead=(Operation.CLUSTER_ACTION, _CLUSTER),
        ),
    ),
    ApiKey.LIST_TRANSACTIONS: (Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.OMITTED),),
    # The cluster and its topics.
    ApiKey.METADATA: (
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY_OR_OMITTED),
        attrs.evolve(_CREATE_TOPIC, when="for a missing topic that would be created"),
    ),
    # The controller refuses no one before it knows that it is the controller.
    ApiKey.CREATE_TOPICS: (
        _CREATE_TOPIC,
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.SETTINGS, when="to see the settings"),
    ),
    ApiKey.DELETE_TOPICS: (Need(Operation.DELETE, _TOPIC, Refusal.ENTRY),),
    ApiKey.CREATE_PARTITIONS: (Need(Operation.ALTER, _TOPIC, Refusal.ENTRY),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    # Settings.
    ApiKey.DESCRIBE_CONFIGS: (
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.ENTRY, when="of topics"),
        Need(Operation.DESCRIBE_CONFIGS, _CLUSTER, Refusal.ENTRY, when="of brokers"),
    ),
    ApiKey.ALTER_CONFIGS: _ALTER_SETTINGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_SETTINGS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Need(Operation.DESCRIBE_CONFIGS, _CLUSTER, Refusal.AT_ONCE),),
    ApiKey.ALTER_CLIENT_QUOTAS: (Need(Operation.ALTER_CONFIGS, _CLUSTER, Refusal.AT_ONCE),),
    # Users.
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    # Refused by the controller alone.
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Need(Operation.ALTER, _CLUSTER, Refusal.WHOLE),),
    # ACLs.
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    # Members of a group, and those who look after it.
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: _MEMBER,
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: _MEMBER,
    ApiKey.OFFSET_COMMIT: (*_MEMBER, Need(Operation.READ, _TOPIC, Refusal.ENTRY)),
    ApiKey.TXN_OFFSET_COMMIT: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE),
        Need(Operation.READ, _GROUP, Refusal.WHOLE),
        Need(Operation.READ, _TOPIC, Refusal.ENTRY),
    ),
    ApiKey.OFFSET_FETCH: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.WHOLE),
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY_OR_OMITTED),
    ),
    ApiKey.FIND_COORDINATOR: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.WHOLE, when="of a group"),
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.WHOLE, when="of transactions"),
    ),
    ApiKey.DESCRIBE_GROUPS: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.LIST_GROUPS: (
        Need(
            Operation.DESCRIBE,
            _GROUP,
            Refusal.OMITTED,
            instead=(Operation.DESCRIBE, _CLUSTER),
        ),
    ),
    ApiKey.DELETE_GROUPS: (Need(Operation.DELETE, _GROUP, Refusal.ENTRY),),
    ApiKey.OFFSET_DELETE: (
        Need(Operation.DELETE, _GROUP, Refusal.AT_ONCE),
        Need(Operation.READ, _TOPIC, Refusal.ENTRY),
    ),
    # Between brokers.
    ApiKey.LEADER_AND_ISR: _FROM_BROKERS,
    ApiKey.STOP_REPLICA: _FROM_BROKERS,
    ApiKey.UPDATE_METADATA: _FROM_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _FROM_BROKERS,
    ApiKey.WRITE_TXN_MARKERS: _FROM_BROKERS,
    # Only what the sender may do to the cluster needs a permission to be told.
    ApiKey.DESCRIBE_CLUSTER: (),
    # Before anybody is known.
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
}
"""What the requests of each API need, in the order in which it is checked: the first refusal
decides."""


_NOUNS = {
    _TOPIC: "topic",
    _GROUP: "group",
    _CLUSTER: "cluster",
    _TRANSACTIONAL_ID: "transactional id",
}


def missing_right(api_key: int, error: ErrorCode) -> str:
    """Return in words what a client lacks whose request has an error; "" if it is no right."""
    for need in NEEDS.get(api_key, ()):
        if need.error is error:
            right = f"{need.operation.name} on the {_NOUNS[need.kind]}"
            # Brokers alone have that.
            if need.instead is None or need.instead[0] is Operation.CLUSTER_ACTION:
                return right
            operation, kind = need.instead
            if operation is need.operation:
                return f"{right}, or on the {_NOUNS[kind]}"
            return f"{right}, or {operation.name} on any {_NOUNS[kind]}"
    return ""
