"""Read the document with the public keys by which tokens are checked: a file, or a page by https.

It is read in a thread. What answers is bounded in size and time: a page that grows or drips for
ever costs nothing but the old keys staying in force.
"""

from __future__ import annotations

import time
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

HTTPS = "https:"

MAX_BYTES = 1024 * 1024
"""Largest document."""
SILENCE_S = 10.0
"""Longest wait for the next bytes of a page."""
FETCH_S = 30.0
"""Longest time for a whole page."""
_PIECE_BYTES = 64 * 1024


def read_document(location: str) -> bytes:
    """Return the bytes of a path, or of a URL of https. This blocks. Raises OSError."""
    if location.startswith(HTTPS):
        return _fetch(location)
    with Path(location).open("rb") as file:
        return _read(file)


class _OnlyHttps(HTTPRedirectHandler):
    """Follows redirections, but none to where anybody could answer."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not newurl.startswith(HTTPS):
            raise URLError("it redirects to something else than https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str) -> bytes:
    try:
        with build_opener(_OnlyHttps).open(url, timeout=SILENCE_S) as page:
            return _read(page, time.monotonic() + FETCH_S)
    except HTTPException as error:
        raise OSError(f"no page of HTTP: {error!r}") from error


def _read(source: Any, ends_s: float | None = None) -> bytes:
    """Read a file or a page to its end. Raises OSError beyond the bounds."""
    pieces = []
    size = 0
    while piece := source.read1(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            raise OSError(f"it has more than {MAX_BYTES} bytes")
        if ends_s is not None and time.monotonic() > ends_s:
            raise OSError(f"it is not complete after {FETCH_S:g} s")
    return b"".join(pieces)
