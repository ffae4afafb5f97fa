"""One API: its classes, its versions, and the function for an error response.

A module of `protocol.messages` declares one API: a request class, a response class, and
`error_response`. It has the name of its key, and is imported when its API is first asked for: a
command that sends four kinds of requests does not wait for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import attrs

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.wire import Declaration, Versions, declaration_of


@frozen
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


@cache
def find_api(key: int) -> Api:
    """Return the API of a key that `protocol.registry` has."""
    return _read_api(import_module(f"protocol.messages.{ApiKey(key).name.lower()}"))


def key_of(request: Any) -> ApiKey:
    """Return the key of a request's API."""
    key = declaration_of(type(request)).api
    assert key is not None, f"{type(request).__name__} is no request"
    return key


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
