"""ControlledShutdown as the controller's broker serves it."""

from typing import Any

import pytest

from broker.controller.events import ShutdownRequested
from broker.handlers import controlled_shutdown
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.topic_partition import TopicPartition
from tests.broker.asked_controller import AskedController, served


def shut_down(controller: AskedController) -> Any:
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=77)
    context = RequestContext(2, "2", "PLAINTEXT", "1", 0)
    return served(
        lambda deferred: controlled_shutdown.handle(
            controller.as_controller(), deferred, 20, request, context
        )
    )


def test_broker_is_told_what_it_leads_still() -> None:
    controller = AskedController((TopicPartition("t", 3),))
    response = shut_down(controller)
    left = [
        (partition.topic_name, partition.partition_index)
        for partition in response.remaining_partitions
    ]
    assert (response.error_code, left) == (0, [("t", 3)])
    assert controller.asked == [ShutdownRequested(2, 77)]


def test_refusal_of_the_controller_is_passed_on() -> None:
    with pytest.raises(ApiError) as refusal:
        shut_down(AskedController(ApiError(ErrorCode.STALE_BROKER_EPOCH)))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_controller_that_does_not_answer_in_time_has_timed_out() -> None:
    assert shut_down(AskedController()).error_code == ErrorCode.REQUEST_TIMED_OUT
