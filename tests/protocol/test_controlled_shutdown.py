"""ControlledShutdown byte for byte, and the one request header that has no client id."""

import pytest

from protocol.api_key import ApiKey
from protocol.encoding import encode
from protocol.header import RequestHeader, read_request, read_request_header
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlledShutdownResponseRemainingPartition,
)


@pytest.mark.parametrize(
    ("version", "written"), [(0, "00000003"), (1, "00000003"), (2, "000000030000000100000002")]
)
def test_request_has_the_broker_and_from_version_2_its_epoch(version: int, written: str) -> None:
    request = ControlledShutdownRequest(broker_id=3, broker_epoch=0x1_0000_0002)
    assert encode(request, version).hex() == written


def test_response_has_the_partitions_that_remain() -> None:
    left = ControlledShutdownResponseRemainingPartition(topic_name="té", partition_index=1)
    response = ControlledShutdownResponse(error_code=77, remaining_partitions=(left,))
    assert encode(response, 2).hex() == "004d" + "00000001" + "000374c3a9" + "00000001"


def test_version_0_has_no_client_id_before_its_body() -> None:
    frame = bytes.fromhex("0007" + "0000" + "00000009" + "00000003")
    header, position = read_request_header(frame)
    assert header == RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 9, None)
    assert read_request(header, frame, position) == ControlledShutdownRequest(broker_id=3)


def test_version_1_has_one() -> None:
    frame = bytes.fromhex("0007" + "0001" + "00000009" + "000178" + "00000003")
    header, position = read_request_header(frame)
    assert header.client_id == "x"
    assert read_request(header, frame, position) == ControlledShutdownRequest(broker_id=3)
