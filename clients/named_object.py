"""Settings that hold an object: the object itself, its class, or the name of its class.

Kafka's settings name Java classes, which it creates by reflection. Here a name is `module:Class`,
and the object is created without arguments. Python code can pass the object itself.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from protocol.settings import SettingError

T = TypeVar("T")


def named_object(value: Any) -> Any:
    """Return the object that a setting holds, names, or is the class of.

    Raises LookupError for an unknown name, and errors of importing the module or of creating the
    object.
    """
    if isinstance(value, str):
        module, colon, name = value.partition(":")
        if not colon:
            raise LookupError(f"{value!r} is not module:Class")
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise LookupError(f"{value!r}: {error}") from error
    return value() if isinstance(value, type) else value


def named_callable(value: Any, method: str) -> Callable[..., Any]:
    """Return that object's `method`, or the object if it has no such method and is callable.

    Raises as `named_object`, and TypeError for an object without either.
    """
    target = named_object(value)
    method_or_target = getattr(target, method, target)
    if not callable(method_or_target):
        raise TypeError(f"{value!r} cannot be called and has no method {method}")
    return cast("Callable[..., Any]", method_or_target)


def made_of(setting_name: str, make: Callable[[Any], T], value: Any) -> T:
    """Return `make` of a setting's value. Raises SettingError if the value cannot be used."""
    try:
        return make(value)
    except (LookupError, TypeError) as error:
        raise SettingError(setting_name, f"{value!r} cannot be used: {error}") from error
