"""Make the server's responses: the envelopes that the commands print."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from starlette.responses import Response

from clients.command_line.output import ENVELOPE_VERSION, VERDICTS, Failure
from clients.command_line.printing import json_text

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
    # Who asks with curl sees it on a terminal (fault security-12, was: str(content | more)).
    text = json_text(content | more, compact=True)
    return Response(text, status, headers=HEADERS, media_type="application/json")
