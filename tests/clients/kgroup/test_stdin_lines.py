"""Lines of a file descriptor, in pieces of any size."""

import asyncio
import os
from pathlib import Path

import pytest

from clients.kgroup.stdin_lines import READ_BYTES, lines_of


async def lines_in(place: Path) -> list[bytes]:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        return [line async for lines in lines_of(descriptor) for line in lines]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a",
        b"a\n",
        b"a\n\nb\n",
        b"\n",
        b"x" * READ_BYTES + b"\n",
        b"x" * (READ_BYTES * 5 + 7) + b"\ny\n" + b"z" * READ_BYTES * 2,
    ],
)
def test_lines_are_those_of_the_whole_however_many_reads_it_takes(
    content: bytes, tmp_path: Path
) -> None:
    whole = content.split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    place = tmp_path / "input"
    place.write_bytes(content)
    assert asyncio.run(lines_in(place)) == expected
