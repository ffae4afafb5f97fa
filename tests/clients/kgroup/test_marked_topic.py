"""A topic that is marked for deletion is refused at once, and no other."""

from typing import Any

import pytest

from clients.admin import Admin
from clients.command_line.command_group import CommandFailed
from clients.kgroup.marked_topic import LOOKS, refuse_marked_topic
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import create_topics
from tests.clients.admin.running_admin import with_admin
from tests.clients.scripted_broker import ScriptedBroker


def looks(topic: str, verdict: ErrorCode, *, shown_after: int | None = None) -> int:
    """Return how often the name was tried until the topic was let pass."""

    async def scenario(admin: Admin, broker_1: ScriptedBroker, broker_2: ScriptedBroker) -> int:
        pauses = 0

        async def pause(seconds: float) -> None:
            nonlocal pauses
            pauses += 1
            if pauses == shown_after:
                broker_1.topics[topic] = broker_2.topics[topic] = 1

        def refused(request: Any) -> Any:
            assert request.validate_only
            return create_topics.error_response(request, verdict)

        for broker in (broker_1, broker_2):
            broker.answers[ApiKey.CREATE_TOPICS] = refused
            # Whoever is asked names the same controller.
            broker.answers[ApiKey.METADATA] = broker_1.metadata
        await refuse_marked_topic(admin, topic, pause)
        return len(broker_1.asked(ApiKey.CREATE_TOPICS))

    tries: int = with_admin(scenario)
    return tries


def test_a_name_that_is_taken_and_not_shown_is_that_of_a_marked_topic() -> None:
    with pytest.raises(CommandFailed, match="topic gone is marked for deletion"):
        looks("gone", ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.mark.parametrize(
    ("topic", "verdict", "tries"),
    [
        ("t", ErrorCode.TOPIC_ALREADY_EXISTS, 0),
        ("new", ErrorCode.NONE, 1),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1),
    ],
    ids=["one that is there", "one that may be created", "one that may not be asked for"],
)
def test_other_topics_pass(topic: str, verdict: ErrorCode, tries: int) -> None:
    assert looks(topic, verdict) == tries


def test_a_topic_that_was_just_created_passes_when_it_is_shown() -> None:
    assert looks("late", ErrorCode.TOPIC_ALREADY_EXISTS, shown_after=LOOKS - 1) == LOOKS - 1
