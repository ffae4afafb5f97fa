"""Options that begin with `kafka.`: the settings of the client behind a source or a sink."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from clients.cluster_view import parse_bootstrap
from protocol.settings import SettingError

CLIENT = "kafka."


def split_options(
    given: Mapping[str, str], own_names: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the client's settings, without their prefix, and the options of our own.

    `own_names` are options of our own, in lower case, that begin like a client's setting.
    """
    client: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, text in given.items():
        if name.lower().startswith(CLIENT) and name.lower() not in own_names:
            client[name[len(CLIENT) :]] = text
        else:
            own[name] = text
    return client, own


def impatient(settings: Mapping[str, Any], most_ms: int) -> dict[str, Any]:
    """Return a client's settings with which a call takes `most_ms`, or less where they say so."""
    # A broker that hangs holds a call up for as long as one request may take.
    bounds = ("default.api.timeout.ms", "request.timeout.ms")
    return {**settings, **{name: min(settings[name], most_ms) for name in bounds}}


@contextmanager
def named_as_given() -> Iterator[None]:
    """Let a SettingError name the client's setting as the user did, with its prefix."""
    try:
        yield
    except SettingError as error:
        raise error.with_name(CLIENT + error.name) from error


def check_bootstrap(servers: Sequence[str]) -> None:
    """Raise SettingError unless these are addresses of brokers."""
    if not servers:
        raise SettingError("bootstrap.servers", "names no broker")
    parse_bootstrap(servers)
