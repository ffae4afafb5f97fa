"""The log of a test, where asyncio reports exceptions that nobody has awaited."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if asyncio logs an error that nobody awaited."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
