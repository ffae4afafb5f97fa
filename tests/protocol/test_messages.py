"""Every message in every version against kafka-python's independent codec, both ways."""

from __future__ import annotations

import contextlib
import importlib
import random
import string
import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from protocol.api_key import ApiKey
from protocol.encoding import decode, encode
from protocol.errors import ErrorCode
from protocol.primitives import WireError
from protocol.registry import API
from protocol.wire import BOOL, BYTES, FLOAT64, INT32, RECORDS, STRING, UUID, Array, WireField
from tests.protocol.bits import BITS

PEER_MODULES = ("producer", "consumer", "metadata", "admin", "sasl")
CONTROL = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.UPDATE_METADATA,
    ApiKey.STOP_REPLICA,
    ApiKey.CONTROLLED_SHUTDOWN,
}
# AddPartitionsToTxn, since brokers ask by its version 4.
LATER_NAMES = {
    "transactional_id": ("v3_and_below_transactional_id",),
    "producer_id": ("v3_and_below_producer_id",),
    "producer_epoch": ("v3_and_below_producer_epoch",),
    "topics": ("v3_and_below_topics",),
    "results": ("results_by_topic_v3_and_below", "results_by_partition"),
    "error_code": ("partition_error_code",),
}
UNKNOWN_TO_PEER = {ApiKey.CONSUMER_GROUP_DESCRIBE}


def cases() -> Iterator[Any]:
    for api in API.values():
        for version in range(api.versions.first, api.versions.last + 1):
            for cls in (api.request, api.response):
                yield pytest.param(cls, version, id=f"{cls.__name__}-v{version}")


def peer_cases() -> Iterator[Any]:
    return (
        c for c in cases() if not any(c.values[0] in _classes(k) for k in CONTROL | UNKNOWN_TO_PEER)
    )


def _classes(key: ApiKey) -> tuple[type, type]:
    return API[key].request, API[key].response


def peer_class(name: str) -> Any:
    for module in PEER_MODULES:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {name}")


def some(rng: random.Random, kind: Any, version: int, nullable: bool) -> Any:
    if nullable and rng.random() < 0.2:
        return None
    if isinstance(kind, Array):
        return tuple(some(rng, kind.of, version, False) for _ in range(rng.randint(0, 3)))
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is FLOAT64:
        return rng.uniform(-1e9, 1e9)
    if kind in BITS:
        return rng.randint(-(1 << BITS[kind]), (1 << BITS[kind]) - 1)
    if kind is STRING:
        return "".join(rng.choices(string.ascii_letters + "äж", k=rng.randint(0, 12)))
    if kind is UUID:
        return rng.randbytes(16)
    if kind in (BYTES, RECORDS):
        return rng.randbytes(rng.randint(0, 40))
    return instance(rng, kind, version)


def instance(rng: random.Random, cls: type, version: int) -> Any:
    values = {}
    for attribute in attrs.fields(cls):
        field: WireField = attribute.metadata["wire"]
        if field.since <= version <= field.until and field.tag is None:
            null = field.nullable is not None and version >= field.nullable
            values[attribute.name] = some(rng, field.type, version, null)
            if attribute.name.endswith("authorized_operations") and field.type is INT32:
                values[attribute.name] = rng.randrange(1 << 13)  # a bit for each operation
    return cls(**values)


def plain(value: Any) -> Any:
    """Turn a message, ours or the peer's, into nested dicts."""
    if attrs.has(type(value)):
        return {a.name: plain(getattr(value, a.name)) for a in attrs.fields(type(value))}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, uuid.UUID):
        return value.bytes
    return bytes(value) if isinstance(value, memoryview) else value


def peers_value(peer: Any, name: str) -> Any:
    """Return a field of the peer's message, which may have a later name."""
    for other in (name, *LATER_NAMES.get(name, ())):
        if hasattr(peer, other):
            return getattr(peer, other)
    raise AssertionError(f"{type(peer).__name__} has no {name}")


def same(ours: Any, peer: Any, version: int) -> None:
    for attribute in attrs.fields(type(ours)):
        field: WireField = attribute.metadata["wire"]
        if not field.since <= version <= field.until or field.tag is not None:
            continue
        mine = getattr(ours, attribute.name)
        if attribute.name.endswith("authorized_operations"):
            continue  # the peer makes a set of it; the bytes are compared all the same
        theirs = peers_value(peer, attribute.name)
        if isinstance(field.type, Array) and mine is not None and isinstance(field.type.of, type):
            assert len(mine) == len(theirs)
            for a, b in zip(mine, theirs, strict=True):
                same(a, b, version)
        else:
            assert plain(mine) == plain(theirs), attribute.name


@pytest.mark.parametrize(("cls", "version"), list(cases()))
def test_a_message_reads_back_as_it_was_written(cls: type, version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(20):
        value = instance(rng, cls, version)
        data = encode(value, version)
        again, end = decode(cls, version, memoryview(data))
        assert end == len(data)
        assert plain(again) == plain(value)


@pytest.mark.parametrize(("cls", "version"), list(peer_cases()))
def test_an_independent_codec_reads_our_bytes_and_writes_the_same(cls: type, version: int) -> None:
    peer = peer_class(cls.__name__)
    rng = random.Random(f"peer {cls.__name__} {version}")
    for _ in range(10):
        value = instance(rng, cls, version)
        if cls is API[ApiKey.API_VERSIONS].response:
            value = attrs.evolve(value, error_code=0)  # the peer reads any error as version 0
        data = encode(value, version)
        read = peer.decode(data, version=version)
        read._header = None
        same(value, read, version)
        assert read.encode() == data


@pytest.mark.parametrize(("cls", "version"), list(cases()))
def test_a_cut_message_is_refused_with_a_wire_error(cls: type, version: int) -> None:
    rng = random.Random(f"cut {cls.__name__} {version}")
    data = encode(instance(rng, cls, version), version)
    for cut in range(len(data)):
        with pytest.raises(WireError):
            decode(cls, version, data[:cut])


def test_an_array_longer_than_the_message_is_refused_before_it_is_allocated() -> None:
    api = API[ApiKey.LIST_GROUPS]
    data = b"\0\0" + (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(WireError, match="length 2147483647"):
        decode(api.response, 0, data)


def test_unknown_tagged_fields_are_skipped() -> None:
    api = API[ApiKey.API_VERSIONS]
    body = b"\x02x\x02y" + b"\x01\x63\x03abc"
    request, end = decode(api.request, 3, body)
    assert (request.client_software_name, request.client_software_version) == ("x", "y")
    assert end == len(body)


def test_a_message_of_nonsense_never_does_worse_than_a_wire_error() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        api = rng.choice(list(API.values()))
        version = rng.randint(api.versions.first, api.versions.last)
        with contextlib.suppress(WireError):
            decode(api.request, version, rng.randbytes(rng.randint(0, 60)))


@pytest.mark.parametrize("key", list(API))
def test_a_request_is_refused_with_an_error_in_each_version(key: ApiKey) -> None:
    api = API[key]
    rng = random.Random(f"refused {key.name}")
    for version in range(api.versions.first, api.versions.last + 1):
        request = instance(rng, api.request, version)
        response = api.error_response(request, ErrorCode.INVALID_REQUEST)
        assert response is None or decode(api.response, version, encode(response, version))
