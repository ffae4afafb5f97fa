"""Admin, and the values that it takes and returns."""

from clients.admin import (
    EARLIEST_TIME,
    LATEST_TIME,
    PREFERRED,
    UNCLEAN,
    Admin,
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
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
    "ListedOffset",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionReassignment",
    "TopicDescription",
    "TopicPartitionReplica",
]
