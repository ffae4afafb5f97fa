"""Kafka's error codes, what they mean, and the roots of our exceptions."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes of the wire protocol: code, whether to retry, what it means."""

    retriable: bool
    meaning: str

    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "The server failed in a way it did not expect")
    NONE = (0, False, "No error")
    OFFSET_OUT_OF_RANGE = (1, False, "The offset is outside the range the partition holds")
    CORRUPT_MESSAGE = (2, True, "A batch failed its checks or its checksum")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "This server does not host this topic-partition")
    INVALID_FETCH_SIZE = (4, False, "The requested fetch size is invalid")
    LEADER_NOT_AVAILABLE = (5, True, "The partition has no leader at the moment")
    NOT_LEADER_OR_FOLLOWER = (6, True, "This broker is not the leader of the partition")
    REQUEST_TIMED_OUT = (7, True, "The request timed out")
    BROKER_NOT_AVAILABLE = (8, False, "The broker is not available")
    REPLICA_NOT_AVAILABLE = (9, True, "The replica is not available")
    MESSAGE_TOO_LARGE = (10, False, "The message is larger than the server accepts")
    STALE_CONTROLLER_EPOCH = (11, False, "The controller moved to another broker")
    OFFSET_METADATA_TOO_LARGE = (12, False, "The metadata of the offset is too long")
    NETWORK_EXCEPTION = (13, True, "The server disconnected before an answer came")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "The coordinator is loading")
    COORDINATOR_NOT_AVAILABLE = (15, True, "The coordinator is not available")
    NOT_COORDINATOR = (16, True, "This broker is not the coordinator of the group")
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic name is not valid, or the topic is not open to this",
    )
    RECORD_LIST_TOO_LARGE = (18, False, "The batch is larger than the segment size")
    NOT_ENOUGH_REPLICAS = (19, True, "There are fewer in-sync replicas than required")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The messages were written to too few in-sync replicas",
    )
    INVALID_REQUIRED_ACKS = (21, False, "The required acks value is not valid")
    ILLEGAL_GENERATION = (22, False, "The group's generation is not the current one")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "The member's protocols do not fit the group's")
    INVALID_GROUP_ID = (24, False, "The group id is not valid")
    UNKNOWN_MEMBER_ID = (25, False, "The coordinator does not know this member")
    INVALID_SESSION_TIMEOUT = (26, False, "The session timeout is outside the allowed range")
    REBALANCE_IN_PROGRESS = (27, False, "The group is rebalancing")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "The committed data is too large")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "Not authorized to access the topic")
    GROUP_AUTHORIZATION_FAILED = (30, False, "Not authorized to access the group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "Not authorized for this cluster operation")
    INVALID_TIMESTAMP = (32, False, "The timestamp of the message is out of range")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "The SASL mechanism is not supported")
    ILLEGAL_SASL_STATE = (34, False, "The request is not valid in this SASL state")
    UNSUPPORTED_VERSION = (35, False, "The version is not supported")
    TOPIC_ALREADY_EXISTS = (36, False, "The topic exists already")
    INVALID_PARTITIONS = (37, False, "The number of partitions is not valid")
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is not valid, or larger than the brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, False, "The replica assignment is not valid")
    INVALID_CONFIG = (40, False, "The configuration is not valid")
    NOT_CONTROLLER = (41, True, "This broker is not the controller")
    INVALID_REQUEST = (42, False, "The request is not valid")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "The broker's message format does not support the request",
    )
    POLICY_VIOLATION = (44, False, "The request violates a policy")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "A sequence number came out of order")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "A sequence number came twice")
    INVALID_PRODUCER_EPOCH = (47, False, "The producer's epoch is older than the current one")
    INVALID_TXN_STATE = (48, False, "Invalid txn state")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "Invalid producer id mapping")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "Invalid transaction timeout")
    CONCURRENT_TRANSACTIONS = (51, True, "Concurrent transactions")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "Transaction coordinator fenced")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "Transactional id authorization failed")
    SECURITY_DISABLED = (54, False, "Security disabled")
    OPERATION_NOT_ATTEMPTED = (55, False, "Operation not attempted")
    KAFKA_STORAGE_ERROR = (56, True, "The disk failed under the log")
    LOG_DIR_NOT_FOUND = (57, False, "Log dir not found")
    SASL_AUTHENTICATION_FAILED = (58, False, "Sasl authentication failed")
    UNKNOWN_PRODUCER_ID = (59, False, "Unknown producer id")
    REASSIGNMENT_IN_PROGRESS = (60, False, "A reassignment is in progress")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "Delegation token auth disabled")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "Delegation token not found")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "Delegation token owner mismatch")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64, False, "Delegation token request not allowed")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "Delegation token authorization failed")
    DELEGATION_TOKEN_EXPIRED = (66, False, "Delegation token expired")
    INVALID_PRINCIPAL_TYPE = (67, False, "Invalid principal type")
    NON_EMPTY_GROUP = (68, False, "The group is not empty")
    GROUP_ID_NOT_FOUND = (69, False, "The group does not exist")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "The fetch session does not exist")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "The fetch session epoch is not valid")
    LISTENER_NOT_FOUND = (72, True, "The leader has no listener of this name")
    TOPIC_DELETION_DISABLED = (73, False, "Topic deletion is disabled")
    FENCED_LEADER_EPOCH = (74, True, "The leader epoch is older than the current one")
    UNKNOWN_LEADER_EPOCH = (75, True, "The leader epoch is newer than this broker knows")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "The compression type is not supported here")
    STALE_BROKER_EPOCH = (77, False, "The broker epoch is stale")
    OFFSET_NOT_AVAILABLE = (78, True, "The leader's high watermark has not caught up yet")
    MEMBER_ID_REQUIRED = (79, False, "The member needs an id first")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "The preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = (81, False, "The group is full")
    FENCED_INSTANCE_ID = (82, False, "Another member took over this instance id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "Eligible leaders not available")
    ELECTION_NOT_NEEDED = (84, True, "The election is not needed")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "No reassignment is in progress")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "The group is subscribed to the topic")
    INVALID_RECORD = (87, False, "The record is not valid")
    UNSTABLE_OFFSET_COMMIT = (88, True, "There are offsets whose transaction is not complete")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "The quota is exceeded")
    PRODUCER_FENCED = (90, False, "Producer fenced")
    RESOURCE_NOT_FOUND = (91, False, "Resource not found")
    DUPLICATE_RESOURCE = (92, False, "Duplicate resource")
    UNACCEPTABLE_CREDENTIAL = (93, False, "Unacceptable credential")
    INCONSISTENT_VOTER_SET = (94, False, "Inconsistent voter set")
    INVALID_UPDATE_VERSION = (95, False, "Invalid update version")
    FEATURE_UPDATE_FAILED = (96, False, "Feature update failed")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "Principal deserialization failure")
    SNAPSHOT_NOT_FOUND = (98, False, "Snapshot not found")
    UNKNOWN_TOPIC_ID = (100, True, "Unknown topic id")
    DUPLICATE_BROKER_REGISTRATION = (101, False, "Duplicate broker registration")
    BROKER_ID_NOT_REGISTERED = (102, False, "Broker id not registered")
    INCONSISTENT_TOPIC_ID = (103, True, "Inconsistent topic id")
    INCONSISTENT_CLUSTER_ID = (104, False, "Inconsistent cluster id")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "Transactional id not found")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "Fetch session topic id error")
    INELIGIBLE_REPLICA = (107, False, "Ineligible replica")

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member of a code; UNKNOWN_SERVER_ERROR for a code newer than this table."""
        found = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)
        assert isinstance(found, ErrorCode)
        return found

    @property
    def refresh_metadata(self) -> bool:
        """Whether the error says that the asker's picture of the cluster is old."""
        return self in _REFRESH


_REFRESH = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class KgroupError(Exception):
    """Root of all errors that a user of a client can catch; `clients.errors` has every kind.

    What a broker raises towards the wire is ApiError.
    """

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later without a change by the caller."""
        return False


class ApiError(Exception):
    """The one exception that may reach the wire: an error code and what it is about."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail or code.meaning}")
        self.code = code
        self.detail = detail
