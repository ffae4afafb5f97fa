"""The list of all APIs: API key → classes, versions, and the function for an error response.

A module of `protocol.messages` declares one API: a request class, a response class, and
`error_response`. The list is made from these declarations.
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
    consumer_group_describe,
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
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
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
    sync_group,
    update_metadata,
)
from protocol.wire import Declaration, Versions, declaration_of

_MODULES = (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
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
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
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
    sync_group,
    update_metadata,
)


@attrs.frozen
class Api:
    """An API: its classes and its versions.

    The codec knows all `versions`. A broker advertises the `served` ones, and our clients choose
    among the `sent` ones. `error_response(request, code)` refuses the whole request.
    """

    key: ApiKey
    request: type
    response: type
    versions: Versions
    served: Versions
    sent: Versions
    error_response: Callable[[Any, ErrorCode], Any]


def _read_api(module: ModuleType) -> Api:
    """Join the declarations of a module's two classes, which must agree."""
    request = _message_class(module, "Request")
    response = _message_class(module, "Response")
    declaration = declaration_of(request)

    assert declaration.api is not None
    assert _codec_of(declaration) == _codec_of(declaration_of(response)), (
        f"{module.__name__}: request and response declare different versions"
    )

    return Api(
        declaration.api,
        request,
        response,
        declaration.versions,
        declaration.served,
        declaration.sent,
        module.error_response,
    )


def _message_class(module: ModuleType, kind: str) -> type:
    """Find the request or response class of a module: the only one that declares an API."""
    classes: list[type] = [
        value
        for name, value in vars(module).items()
        if name.endswith(kind) and hasattr(value, "__declaration__")
    ]
    (message_class,) = classes
    return message_class


def _codec_of(declaration: Declaration) -> Declaration:
    versions = declaration.versions
    return attrs.evolve(declaration, served=versions, sent=versions)


API: Mapping[int, Api] = {api.key: api for api in map(_read_api, _MODULES)}

KEY_OF: dict[type, ApiKey] = {api.request: api.key for api in API.values()}
