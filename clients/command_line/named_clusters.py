"""Named clusters: the addresses that `--cluster NAME` stands for, from the user's config.toml.

    default = "prod"

    [clusters.prod]
    bootstrap-server = "b1:9092,b2:9092"
    zookeeper = "z1:2181/kafka"
    command-config = "prod.properties"
    timeout = 10000

The file is $XDG_CONFIG_HOME/kgroup/config.toml, by default below ~/.config. `command-config` is
relative to it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError


@frozen
class NamedCluster:
    """One table `[clusters.NAME]`; None for what it leaves out."""

    name: str
    bootstrap_server: str | None = None
    zookeeper: str | None = None
    command_config: Path | None = None
    timeout_ms: int | None = None


@frozen
class NamedClusters:
    """All clusters of the file, and the name of the default."""

    path: Path
    clusters: Mapping[str, NamedCluster] = attrs.Factory(dict)
    default: str | None = None

    def find(self, name: str) -> NamedCluster:
        """Return the cluster. Raises SettingError, with the name that may have been meant."""
        if name in self.clusters:
            return self.clusters[name]

        from difflib import get_close_matches  # here, because hardly anyone needs it

        if near := get_close_matches(name, self.clusters, n=1):
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"known are: {', '.join(self.clusters) or 'none'}"
        raise SettingError(f"cluster {name}", f"not in {self.path}; {hint}")


def read_named_clusters() -> NamedClusters:
    """Read the user's file; no file has no clusters. Raises SettingError, OSError."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(home) / "kgroup" / "config.toml"
    try:
        return parse_clusters(path.read_text("utf-8"), path)
    except (FileNotFoundError, NotADirectoryError):
        return NamedClusters(path)
    except UnicodeDecodeError as error:
        raise SettingError(str(path), f"not UTF-8: {error}") from None


def parse_clusters(text: str, path: Path) -> NamedClusters:
    """Read the file's text. Raises SettingError, which names the line or the key."""
    import tomllib  # here, because most users have no such file

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(str(path), str(error)) from None  # ends with its line and column

    if unknown := sorted(content.keys() - {"default", "clusters"}):
        raise SettingError(f"{path}: {unknown[0]}", "neither default nor a table [clusters.NAME]")

    tables = _checked(content.get("clusters", {}), dict, f"{path}: clusters")
    found = NamedClusters(
        path,
        {
            name: _cluster(name, _checked(table, dict, f"{path}: clusters.{name}"), path)
            for name, table in tables.items()
        },
        _checked(content.get("default"), str | None, f"{path}: default"),
    )

    # A default that does not exist would be noticed only by a command without an address.
    if found.default is not None:
        found.find(found.default)
    return found


def _cluster(name: str, table: Mapping[str, Any], path: Path) -> NamedCluster:
    where = f"{path}: clusters.{name}"
    if unknown := sorted(table.keys() - _KEYS.keys()):
        raise SettingError(f"{where}.{unknown[0]}", f"unknown; a cluster has {', '.join(_KEYS)}")

    for key, value in table.items():
        _checked(value, _KEYS[key], f"{where}.{key}")
    if table.get("timeout", 1) < 1:
        raise SettingError(f"{where}.timeout", "less than 1 ms")

    config = table.get("command-config")
    return NamedCluster(
        name,
        table.get("bootstrap-server"),
        table.get("zookeeper"),
        None if config is None else path.parent / Path(config).expanduser(),
        table.get("timeout"),
    )


_KEYS: Mapping[str, type] = {
    "bootstrap-server": str,
    "zookeeper": str,
    "command-config": str,
    "timeout": int,
}


def _checked(value: Any, kind: Any, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SettingError(where, f"{value!r} is of the wrong type")
    return value
