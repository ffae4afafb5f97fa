"""The options of `format("kgroup-offsets")`."""

from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from protocol.settings import load, setting
from spark_connector.client_options import split_options
from spark_connector.options import ReaderConfig, read_client

NO_CLIENT = ReaderConfig(bootstrap_servers=())


@frozen(kw_only=True)
class OffsetsOptions:
    """The options of one table of offsets, to be read or written."""

    client: ReaderConfig = NO_CLIENT
    """The settings whose names begin with `kafka.`."""
    group: tuple[str, ...] = setting(
        "group",
        (),
        doc="Groups to read, separated by commas, all if missing; or the one group to commit to",
    )
    time_lag: bool = setting(
        "timeLag", False, doc="Also read how old the first record is that a group has not consumed"
    )
    execute: bool = setting(
        "execute", False, doc="Commit what is written; without it, only log what would be"
    )


def read_offsets_options(given: Mapping[str, str]) -> OffsetsOptions:
    """Read and check the options. Raises SettingError, which names the option."""
    client, own = split_options(given)
    options, _ = load(OffsetsOptions, own)
    return attrs.evolve(options, client=read_client(client))
