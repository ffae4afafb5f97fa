"""The API versions of old brokers: those before 0.10 do not know ApiVersions.

Such a broker closes the connection instead, so the user has to name its release. The names of
releases, and the rule that the nearest one not above counts, are librdkafka's
(`broker.version.fallback`).
"""

import re
from collections.abc import Mapping
from typing import Final

from protocol.api_key import ApiKey

Versions = Mapping[int, tuple[int, int]]

_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*")

_NEWEST: Final[tuple[tuple[tuple[int, ...], dict[int, int]], ...]] = (
    (
        (0, 8),
        {
            ApiKey.PRODUCE: 0,
            ApiKey.FETCH: 0,
            ApiKey.LIST_OFFSETS: 0,
            ApiKey.METADATA: 0,
        },
    ),
    ((0, 8, 1), {ApiKey.OFFSET_COMMIT: 0, ApiKey.OFFSET_FETCH: 0}),
    ((0, 8, 2), {ApiKey.OFFSET_COMMIT: 1, ApiKey.OFFSET_FETCH: 1, ApiKey.FIND_COORDINATOR: 0}),
    (
        (0, 9),
        {
            ApiKey.PRODUCE: 1,
            ApiKey.FETCH: 1,
            ApiKey.OFFSET_COMMIT: 2,
            ApiKey.JOIN_GROUP: 0,
            ApiKey.HEARTBEAT: 0,
            ApiKey.LEAVE_GROUP: 0,
            ApiKey.SYNC_GROUP: 0,
            ApiKey.DESCRIBE_GROUPS: 0,
            ApiKey.LIST_GROUPS: 0,
        },
    ),
    (
        (0, 10),
        {ApiKey.PRODUCE: 2, ApiKey.FETCH: 2, ApiKey.METADATA: 1, ApiKey.SASL_HANDSHAKE: 0},
    ),
    (
        (0, 10, 1),
        {
            ApiKey.FETCH: 3,
            ApiKey.LIST_OFFSETS: 1,
            ApiKey.METADATA: 2,
            ApiKey.JOIN_GROUP: 1,
            ApiKey.CREATE_TOPICS: 0,
            ApiKey.DELETE_TOPICS: 0,
        },
    ),
)
"""New APIs and their newest versions by release. A broker also speaks all versions before.

No release here ends with 0: as a tuple, 0.8 would come before 0.8.0.
"""


def versions_of(broker_version: str) -> Versions:
    """Return the range of versions by API key. Raises ValueError if the release is before 0.8."""
    if not _RELEASE.fullmatch(broker_version):
        raise ValueError(f"{broker_version!r} is not a version of Kafka, as 0.8.2.2")

    release = tuple(int(part) for part in broker_version.split("."))
    newest: dict[int, int] = {}

    # Releases ascend, so that the newest version of each API comes last.
    for since, added in _NEWEST:
        if release >= since:
            newest |= added

    if not newest:
        raise ValueError(f"brokers of version {broker_version} speak another protocol")

    return {key: (0, version) for key, version in newest.items()}


def known_broker_version(broker_version: str) -> str | None:
    """Return the error of a setting's value, for `protocol.settings`; "" means no fallback."""
    try:
        if broker_version:
            versions_of(broker_version)
    except ValueError as error:
        return str(error)
    return None
