"""Every version that ApiVersions names has a response, in a whole broker in this process."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from broker.server import Broker
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.registry import API
from protocol.wire import BOOL, BYTES, RECORDS, STRING, UUID, Array, fields
from tests.broker.served import Client
from tests.stage.broker import Site

EMPTY = {STRING: "", BOOL: False, UUID: bytes(16), RECORDS: b"", BYTES: b""}


def smallest(kind: Any, version: int) -> Any:
    """Make the least of a message: no text, no elements, -1, null where that is legal."""
    values: dict[str, Any] = {}
    for name, field in fields(kind, version):
        if field.tag is not None:
            continue
        if field.may_be_null(version):
            values[name] = None
        elif isinstance(field.type, Array):
            values[name] = ()
        elif field.type in EMPTY:
            values[name] = EMPTY[field.type]
        else:
            # Numbers of ACLs: 1 is "any", and what is no number of theirs closes the connection.
            values[name] = 1 if kind is DescribeAclsRequest else -1
    return kind(**values)


async def call(client: Client, key: ApiKey, version: int, request: Any) -> Any:
    frame = encode_request(key, version, version, None, request)
    await client.send(frame)
    correlation_id, response = read_response(key, version, await client.receive())
    assert correlation_id == version
    return response


async def client_of(broker: Broker) -> Client:
    host, _, port = broker.bootstrap.rpartition(":")
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    return Client(sock)


async def test_a_request_in_each_version_that_is_named_has_a_response(tmp_path: Path) -> None:
    async with Site(tmp_path).running() as broker:
        client = await client_of(broker)
        named = await call(client, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        served = {ApiKey(row.api_key): row for row in named.api_keys}
        assert served.keys() == {key for key, api in API.items() if api.served.last >= 0}

        for key, row in served.items():
            for version in range(row.min_version, row.max_version + 1):
                request = smallest(API[key].request, version)
                await call(client, key, version, request)

        # After a failure of ours the connection would be closed.
        await call(client, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        client.close()
