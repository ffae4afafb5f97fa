"""Options that begin with `kafka.`: the settings of the client behind a source or a sink."""

from collections.abc import Mapping
from typing import TypeVar

from clients.config import IGNORED
from protocol.settings import SettingError, load

CLIENT = "kafka."

C = TypeVar("C")


def split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the client's settings, without their prefix, and the options of our own."""
    client: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, text in given.items():
        if name.lower().startswith(CLIENT):
            client[name[len(CLIENT) :]] = text
        else:
            own[name] = text
    return client, own


def load_client(cls: type[C], client: Mapping[str, str]) -> C:
    """Make the client's config. Raises SettingError, which names the option with its prefix."""
    try:
        config, _ = load(cls, client, accepted=IGNORED)
    except SettingError as error:
        raise error.with_name(CLIENT + error.name) from error
    return config
