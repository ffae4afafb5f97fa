"""Build the metrics wing: nothing of it exists while `kgroup.metrics.port` is 0."""

from __future__ import annotations

import asyncio
from functools import partial

from broker.metrics.counts import Counts
from broker.metrics.families import format_figures
from broker.metrics.loop_load import measure_load
from broker.metrics.measured_dispatch import MeasuredDispatcher
from broker.metrics.metrics_server import MetricsServer
from broker.metrics.sources import Sources
from broker.network.dispatch import Dispatch
from broker.network.listener import Bind
from broker.process.process import Process
from broker.settings.config import BrokerConfig
from protocol.settings import SettingError


def measure(dispatcher: Dispatch, counts: Counts) -> MeasuredDispatcher:
    """Return a dispatcher that counts the requests of `dispatcher`."""
    return MeasuredDispatcher(dispatcher, counts, asyncio.get_running_loop().time)


async def serve(
    config: BrokerConfig, process: Process, bind: Bind, sources: Sources
) -> MetricsServer:
    """Serve the figures, and begin to measure the loop. Raises SettingError for a taken port."""
    host = config.metrics_host
    if host is None:
        host = config.endpoints[0].host
    try:
        bound = bind(host, config.metrics_port)
    except OSError as error:
        raise SettingError(
            "kgroup.metrics.port",
            f"{host or '*'}:{config.metrics_port} cannot be listened on: {error.strerror}; choose "
            "another port, or 0 for none",
        ) from error

    server = MetricsServer(partial(format_figures, sources), process.spawn)
    await server.start(bound)
    process.spawn(measure_load(sources.load))
    return server
