"""The one list of what we speak: API key → classes, versions, and how to respond with an error.

A module of `protocol.messages` declares one API: a request class, a response class, and
`error_response`. What is here is read off these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import attrs

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leader_and_isr,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)
from protocol.wire import Declared, Versions, declared

_MODULES = (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leader_and_isr,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)


@attrs.frozen
class Api:
    """One API: its classes, and its versions.

    `versions` are those that the codec knows and our clients may use, `served` those that a broker
    advertises. `error_response(request, code)` refuses all that a request asks for.
    """

    key: ApiKey
    request: type
    response: type
    versions: Versions
    served: Versions
    error_response: Callable[[Any, ErrorCode], Any]


def _read_api(module: ModuleType) -> Api:
    """Join what the classes of a module declare."""
    request, response = _message_class(module, "Request"), _message_class(module, "Response")
    asked, answered = declared(request), declared(response)
    assert asked.api is not None
    assert _without_served(asked) == _without_served(answered), module.__name__
    return Api(asked.api, request, response, asked.versions, asked.served, module.error_response)


def _message_class(module: ModuleType, kind: str) -> type:
    """The request or response class of a module: the one that declares an API."""
    classes: list[type] = [
        value
        for name, value in vars(module).items()
        if name.endswith(kind) and hasattr(value, "__declared__")
    ]
    (only,) = classes
    return only


def _without_served(of: Declared) -> Declared:
    return attrs.evolve(of, served=of.versions)


API: Mapping[int, Api] = {api.key: api for api in map(_read_api, _MODULES)}

KEY_OF: dict[type, ApiKey] = {api.request: api.key for api in API.values()}
