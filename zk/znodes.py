"""Every znode of Kafka's that we read or write: its path, its payload, its lifetime.

This module is the door: it names them all. They are defined by noun, in `broker_znodes`,
`controller_znodes`, `topic_znodes`, `admin_znodes` (requests to the controller, and configs),
`consumer_znodes` and `acl_znodes`.

A class has `path(...)`, and `directory()` if its nodes have a parent of their own. `encode` gives
the payload. `decode` reads it, and raises ZnodeError for a payload that the class cannot hold.

Payloads are Kafka's (ZkData of 2.3, the consumer of 0.8.2 to 1.1): compact UTF-8 JSON, with times
and other longs as decimal strings, because consumers up to 0.11 read every JSON number as 32 bits.
Readers ignore the order of keys. Keys that another version added are kept in `extra` and written
back, so that our update loses nothing.

A Java reader takes null for "absent" and empty for "there, but empty". Where a znode has no
payload, `encode` says which of the two it writes.
"""

from zk.acl_znodes import AclChange, ResourceAcls, StoredAcl
from zk.admin_znodes import (
    DEFAULT,
    DEFAULT_ENTITY,
    ClientEntity,
    ConfigChange,
    DeleteTopic,
    EntityConfig,
    EntityName,
    IsrChange,
    LogDirEvent,
    PreferredReplicaElection,
    ProducerIdBlock,
    ReassignPartitions,
    parse_sequence_number,
)
from zk.broker_znodes import BrokerId, BrokerSeqId, ClusterId, Endpoint
from zk.consumer_znodes import ConsumerGroup, ConsumerOffset, ConsumerRegistration, PartitionOwner
from zk.controller_znodes import Controller, ControllerEpoch
from zk.topic_znodes import NO_LEADER, PartitionState, TopicAssignment
from zk.znode_json import ZnodeError

__all__ = [
    "DEFAULT",
    "DEFAULT_ENTITY",
    "NO_LEADER",
    "STARTUP_PATHS",
    "AclChange",
    "BrokerId",
    "BrokerSeqId",
    "ClientEntity",
    "ClusterId",
    "ConfigChange",
    "ConsumerGroup",
    "ConsumerOffset",
    "ConsumerRegistration",
    "Controller",
    "ControllerEpoch",
    "DeleteTopic",
    "Endpoint",
    "EntityConfig",
    "EntityName",
    "IsrChange",
    "LogDirEvent",
    "PartitionOwner",
    "PartitionState",
    "PreferredReplicaElection",
    "ProducerIdBlock",
    "ReassignPartitions",
    "ResourceAcls",
    "StoredAcl",
    "TopicAssignment",
    "ZnodeError",
    "parse_sequence_number",
]

STARTUP_PATHS = (
    ConsumerGroup.directory(),
    BrokerId.directory(),
    TopicAssignment.directory(),
    ConfigChange.directory(),
    DeleteTopic.directory(),
    BrokerSeqId.path(),
    IsrChange.directory(),
    ProducerIdBlock.path(),
    LogDirEvent.directory(),
    EntityConfig.directory("topics"),
    EntityConfig.directory("clients"),
    EntityConfig.directory("users"),
    EntityConfig.directory("brokers"),
)
"""Every broker creates these when it starts, with parents and chroot: persistent, null data."""
