"""An offsets topic that is not compacted is told of once."""

import pytest

from broker.coordinators.coordinators_topic_policy import CoordinatorsTopicPolicy
from core_log.config import LogConfig

COMPACTED = LogConfig(cleanup_policy=("compact",))
DELETED = LogConfig(cleanup_policy=("delete",))
BOTH = LogConfig(cleanup_policy=("compact", "delete"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


@pytest.mark.parametrize(("config", "named"), [(DELETED, "delete"), (BOTH, "compact,delete")])
def test_topic_whose_old_segments_are_deleted_is_named_with_what_to_do(
    config: LogConfig, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = CoordinatorsTopicPolicy()
    for _ in range(3):
        policy.check(config)
    (said,) = warnings(caplog)
    assert f"__consumer_offsets has cleanup.policy={named}:" in said
    assert "configs alter --topic __consumer_offsets --add cleanup.policy=compact" in said


def test_compacted_topic_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    CoordinatorsTopicPolicy().check(COMPACTED)
    assert warnings(caplog) == []


def test_topic_that_was_mended_and_spoiled_again_is_told_of_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = CoordinatorsTopicPolicy()
    for config in (COMPACTED, DELETED, COMPACTED, DELETED):
        policy.check(config)
    assert len(warnings(caplog)) == 2
