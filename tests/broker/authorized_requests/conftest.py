"""One broker for the tests of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.authorized_requests.stage import Authorizer, Stage
from tests.stage.broker import Site


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("broker")
    authorizer = Authorizer()
    with asyncio.Runner() as runner:
        stage = Stage(runner, Site(directory, authorizer=authorizer), authorizer)
        stage.start()
        yield stage
        runner.run(stage.broker.close())
