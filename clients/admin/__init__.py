"""Administer a cluster: topics, configs, users, groups, offsets, reassignments.

Door: `Admin`, and the values that it takes and returns.
"""

from clients.admin.admin import (
    EARLIEST_TIME,
    LATEST_TIME,
    PREFERRED,
    UNCLEAN,
    Admin,
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    GroupListing,
    GroupMemberId,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    TopicDescription,
    TopicPartitionReplica,
)

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "PREFERRED",
    "UNCLEAN",
    "Admin",
    "ClusterDescription",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "GroupMemberId",
    "ListedOffset",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionReassignment",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "TopicDescription",
    "TopicPartitionReplica",
]
