"""The stages that the tests of a session take."""

import pytest

from tests.stage.sessions import MemoryStage, RealStage, SessionStage
from tests.stage.zookeeper import VERSIONS, ZooKeepers

STAGES = ["memory", *VERSIONS]


def stage_of(request: pytest.FixtureRequest, session_timeout_ms: int) -> SessionStage:
    if request.param == "memory":
        return MemoryStage()
    zookeepers: ZooKeepers = request.getfixturevalue("zookeepers")
    return RealStage(zookeepers.chroot(request.param), session_timeout_ms)
