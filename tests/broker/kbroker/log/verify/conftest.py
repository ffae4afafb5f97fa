"""A log that our broker wrote, closed or left by a crash."""

from pathlib import Path

import pytest

from tests.stage.stored_log import stored_log


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A broker's log directory after a clean shutdown; all of it is synced."""
    stored_log(tmp_path / "broker")
    return tmp_path / "broker"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A broker's log directory after a crash; offsets above 30 were not synced."""
    stored_log(tmp_path / "broker", is_clean=False)
    return tmp_path / "broker"
