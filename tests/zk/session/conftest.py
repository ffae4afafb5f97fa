"""Both ZkSessions pass the tests here: the one in memory, and kazoo's on real ZooKeepers."""

import pytest

from tests.stage.sessions import SESSION_MS, SHORT_SESSION_MS, SessionStage
from tests.zk.session.stages import STAGES, stage_of


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> SessionStage:
    return stage_of(request, SESSION_MS)


@pytest.fixture(params=STAGES)
def brief_stage(request: pytest.FixtureRequest) -> SessionStage:
    """A stage with a short session timeout."""
    return stage_of(request, SHORT_SESSION_MS)
