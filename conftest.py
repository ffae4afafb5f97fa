"""Set up the tests of this project.

Coroutines run on a loop of their own, in virtual time on demand, and no event loop may stop for
long. Tests of pure code are marked `fast`; `tests/stage/fast.py` says which they are. Transcripts
are compared, or written anew with --update-transcripts.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import warnings
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import freezegun
import pytest

from core_log import loop_guard

# Before the first helper is imported: its failed asserts show their values, as those of tests do.
pytest.register_assert_rewrite("tests")

from tests.stage import fast, product, transcript, turn_guard  # noqa: E402
from tests.stage.clock import VirtualTimeLoop  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that rewrite golden transcripts, and that ask for all combinations."""
    parser.addoption(
        "--update-transcripts", action="store_true", help="rewrite tests/**/testdata/*.txt"
    )
    parser.addoption(
        "--product", metavar="N/M", help="part N of M of all kinds x strategies x scenarios"
    )


@pytest.fixture
def compare_transcript(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a file of scenarios with what happens now: `compare(path, new_machine)`."""
    is_update = bool(request.config.getoption("--update-transcripts"))
    return partial(transcript.compare, is_update=is_update)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: run the coroutine on a clock that jumps")
    config.addinivalue_line("markers", "fast: a test of pure code, set by tests/stage/fast.py")
    config.addinivalue_line("markers", "product: only with --product, see tests/stage/product.py")
    if _is_fast_run(config):
        fast.watch()
    # It reads all that modules have, and loads the parts of NumPy, one of which starts a process.
    freezegun.configure(extend_ignore_list=["numpy"])
    asyncio.set_event_loop_policy(turn_guard.GuardedLoops())
    loop_guard.turn_on()


def _is_fast_run(config: pytest.Config) -> bool:
    """Return whether only the fast tests are wanted."""
    return bool(config.getoption("markexpr") == "fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is slow, in a run of the fast tests."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    path += "/" if collection_path.is_dir() else ""
    return True if _is_fast_run(config) and fast.is_slow_as_a_whole(path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the fast tests. Take those of the product that are wanted, without a word of others."""
    items[:] = product.wanted(items, config.getoption("--product"))
    for item in items:
        if fast.is_fast(item.nodeid, getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.fast)


def pytest_collection_finish() -> None:
    """Leave the tests and their modules to no later collection of garbage.

    They stay to the end, and a full collection would look at all of them each time: a quarter of a
    second, of which the tests that count what is kept, and each story, would wait for several.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Complain of a test that has stopped an event loop; under CI=true it fails.

    A test fails if it waits for a disk on a loop, or if a fast one talks to other processes.
    """
    turn_guard.begin()
    fast.begin()
    loop_guard.take_refusals()
    yield
    talked = fast.complaint()
    if talked is not None:
        pytest.fail(talked, pytrace=False)
    refused = loop_guard.take_refusals()
    if refused:
        pytest.fail("\n".join(refused), pytrace=False)
    complaint = turn_guard.complaint(item.nodeid)
    if complaint is not None and os.environ.get("CI") == "true":
        pytest.fail(complaint, pytrace=False)
    elif complaint is not None:
        warnings.warn(f"{item.nodeid}: {complaint}", stacklevel=1)


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
