"""How this project's tests run: coroutines on a loop of their own, in virtual time on demand."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.virtual_time import VirtualTimeLoop


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: run the coroutine on a clock that jumps")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted}
    virtual = pyfuncitem.get_closest_marker("virtual_time") is not None
    with asyncio.Runner(loop_factory=VirtualTimeLoop if virtual else None) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True
