"""The broker and the cluster that a log directory belongs to: its `meta.properties` file.

A directory from another broker, or from another cluster, must not be served: consumers of a topic
would read another topic's past. So the directories of a broker must agree with each other and with
the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from protocol.settings import parse_properties

META_PROPERTIES = "meta.properties"
VERSION = 0
_NAMES = ("version", "broker.id", "cluster.id")


class InconsistentMetaProperties(ValueError):
    """A directory's meta.properties cannot be read, or names another broker or cluster."""


@frozen
class MetaProperties:
    """One meta.properties file.

    Files that Kafka before 2.4 wrote have no cluster id. `extra` are the lines that another
    version added; they are written back.
    """

    broker_id: int
    cluster_id: str | None = None
    extra: Mapping[str, str] = attrs.field(factory=dict)

    def encode(self) -> bytes:
        """Encode the file's text."""
        # Java's properties: a comment first, Latin-1 with escapes.
        cluster = {} if self.cluster_id is None else {"cluster.id": self.cluster_id}
        values = {**self.extra, **cluster, "version": VERSION, "broker.id": self.broker_id}
        lines = [f"{_escape(name)}={_escape(str(value))}" for name, value in values.items()]
        return "\n".join(["#", *lines, ""]).encode("latin-1")

    @classmethod
    def decode(cls, text: bytes, path: str = META_PROPERTIES) -> MetaProperties:
        """Decode the text of the file at `path`. Raises InconsistentMetaProperties."""
        # A file that was edited by hand may have blanks at the ends of its lines.
        lines = parse_properties(text.decode("latin-1"))
        values = {name: value.strip() for name, value in lines.items()}
        if values.get("version") != str(VERSION):
            raise InconsistentMetaProperties(
                f"{path}: version {values.get('version')} is not known"
            )

        try:
            extra = {name: values[name] for name in values if name not in _NAMES}
            return cls(int(values["broker.id"]), values.get("cluster.id"), extra)
        except (KeyError, ValueError) as error:
            raise InconsistentMetaProperties(f"{path}: no broker.id: {error}") from error


def _escape(text: str) -> str:
    """Escape a text for a properties file, in ASCII."""
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character in "\\=:#! ":
        return f"\\{character}"
    return character if " " < character <= "~" else f"\\u{ord(character):04x}"


def agree(
    stored: Mapping[str, MetaProperties], broker_id: int, cluster_id: str | None
) -> MetaProperties:
    """Return what all directories, by their paths, say together.

    `broker_id` is -1, and `cluster_id` None, if it is not known yet. A result with broker id -1
    means that no directory has one either. Raises InconsistentMetaProperties.
    """
    for path, meta in stored.items():
        # What is not known yet is what the first directory says.
        if broker_id == -1:
            broker_id = meta.broker_id
        if cluster_id is None:
            cluster_id = meta.cluster_id

        if meta.broker_id != broker_id:
            raise InconsistentMetaProperties(
                f"{path}: broker.id {meta.broker_id} is stored where {broker_id} is expected;"
                " a broker has log directories of its own and keeps its id with them"
            )
        # None: written before 2.4.
        if meta.cluster_id not in (None, cluster_id):
            raise InconsistentMetaProperties(
                f"{path}: cluster.id {meta.cluster_id} is stored where {cluster_id} is expected;"
                " zookeeper.connect leads to another cluster than the one whose data is there"
            )
    return MetaProperties(broker_id, cluster_id)
