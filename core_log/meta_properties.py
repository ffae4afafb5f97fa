"""Which broker of which cluster a log directory belongs to: its `meta.properties` file.

A directory that came from another broker, or from another cluster, must not be served (the
consumer of a topic would see another topic's past), so the directories of a broker have to agree
with each other and with the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from protocol.settings import parse_properties

META_PROPERTIES = "meta.properties"
VERSION = 0


class InconsistentMetaProperties(ValueError):
    """A directory's meta.properties cannot be read, or says another broker or cluster."""


@attrs.frozen
class MetaProperties:
    """One meta.properties. The cluster id is missing in files that Kafka before 2.4 wrote."""

    broker_id: int
    cluster_id: str | None = None

    def encode(self) -> bytes:
        """The file's text."""
        cluster = f"cluster.id={self.cluster_id}\n" if self.cluster_id is not None else ""
        return f"#\n{cluster}version={VERSION}\nbroker.id={self.broker_id}\n".encode()

    @classmethod
    def decode(cls, text: bytes) -> MetaProperties:
        """Read the file's text. Raises InconsistentMetaProperties."""
        values = parse_properties(text.decode("latin-1"))
        if values.get("version") != str(VERSION):
            raise InconsistentMetaProperties(f"version {values.get('version')} is not known")
        try:
            return cls(int(values["broker.id"]), values.get("cluster.id"))
        except (KeyError, ValueError) as error:
            raise InconsistentMetaProperties(f"no broker.id: {error}") from error


def agree(
    stored: Mapping[str, MetaProperties], broker_id: int, cluster_id: str | None
) -> MetaProperties:
    """What all directories, by their paths, say together.

    `broker_id` -1 and `cluster_id` None are not known yet. A result with broker id -1 means that
    none is stored either. Raises InconsistentMetaProperties.
    """
    for path, meta in stored.items():
        if broker_id == -1:
            broker_id = meta.broker_id
        if cluster_id is None:
            cluster_id = meta.cluster_id
        if meta.broker_id != broker_id:
            raise InconsistentMetaProperties(
                f"{path}: broker.id {meta.broker_id} is stored where {broker_id} is expected;"
                " a broker has log directories of its own and keeps its id with them"
            )
        if meta.cluster_id not in (None, cluster_id):
            raise InconsistentMetaProperties(
                f"{path}: cluster.id {meta.cluster_id} is stored where {cluster_id} is expected;"
                " zookeeper.connect leads to another cluster than the one whose data is there"
            )
    return MetaProperties(broker_id, cluster_id)
