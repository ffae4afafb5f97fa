"""Make the server's responses: the envelopes that the commands print."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from starlette.responses import JSONResponse, Response

from clients.command_line.output import ENVELOPE_VERSION, VERDICTS, Failure

HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def envelope(
    kind: str,
    items: Iterable[Mapping[str, Any]],
    errors: Iterable[Failure] = (),
    verdict: str | None = None,
    *,
    status: int = 200,
    **more: Any,
) -> Response:
    """Respond with the envelope that the commands print."""
    content: dict[str, Any] = {
        "kind": kind,
        "version": ENVELOPE_VERSION,
        "items": list(items),
        "errors": [attrs.asdict(error) for error in errors],
    }
    if kind in VERDICTS:
        content["verdict"] = verdict
    return JSONResponse(content | more, status, headers=HEADERS)
