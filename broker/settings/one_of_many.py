"""Derive the settings of several brokers on one host from one `server.properties`. Pure.

Broker k has the id, the ports and the metrics port of the file plus k, and a sub-directory of its
own, `broker_ID`, in each log directory: no partition has such a name, so a broker that is started
on the directory itself says so instead of taking it for one. The rack is the host's name unless the
file has one, so that replicas spread over hosts and not over the processes of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from broker.settings.config import load_broker_config
from broker.settings.endpoints import MAX_PORT
from protocol.settings import SettingError
from zk.znodes import Endpoint

METRICS_PORT = "kgroup.metrics.port"
_OLD_PORTS = ("port", "advertised.port")


def derive_settings(
    properties: Mapping[str, str], count: int, host_name: str
) -> list[dict[str, str]]:
    """Return what each of `count` brokers has in place of the file's settings.

    Raises SettingError for settings from which no brokers can be derived: no id to count from, or
    ports that two of them would share.
    """
    config, _ = load_broker_config(properties)
    if config.broker_id < 0:
        raise SettingError("broker.id", "is needed: the id of the first of several brokers")

    _refuse_shared_ports("listeners", config.endpoints, count)
    _refuse_shared_ports("advertised.listeners", config.advertised, count)

    derived = []
    for index in range(count):
        broker_id = config.broker_id + index
        settings = {
            "broker.id": str(broker_id),
            "log.dirs": ",".join(f"{path}/broker_{broker_id}" for path in config.directories),
            "broker.rack": config.broker_rack or host_name,
        }

        # Without listeners, brokers of old settings have a port each.
        if config.listeners:
            settings["listeners"] = _counted_up(config.endpoints, index)
        else:
            settings["port"] = str(_plus(config.port, index))
        if config.advertised_listeners:
            settings["advertised.listeners"] = _counted_up(config.advertised, index)
        elif config.advertised_port is not None:
            settings["advertised.port"] = str(_plus(config.advertised_port, index))

        if config.metrics_port > 0:
            settings[METRICS_PORT] = str(config.metrics_port + index)
        derived.append(settings)
    return derived


def _counted_up(endpoints: Sequence[Endpoint], index: int) -> str:
    return ",".join(
        str(attrs.evolve(endpoint, port=_plus(endpoint.port, index))) for endpoint in endpoints
    )


def _plus(port: int, index: int) -> int:
    # Port 0 takes any free one.
    return port + index if port else 0


def _refuse_shared_ports(name: str, endpoints: Sequence[Endpoint], count: int) -> None:
    ports = sorted(endpoint.port for endpoint in endpoints if endpoint.port)
    for port, next_port in pairwise(ports):
        if next_port - port < count:
            raise SettingError(
                name,
                f"ports {port} and {next_port} are too close: {count} brokers count up from each",
            )
    if ports and ports[-1] + count - 1 > MAX_PORT:
        raise SettingError(name, f"{count} brokers count up from {ports[-1]}, above {MAX_PORT}")
