"""The requests that write: reset a group, and take a journal entry back. By default a dry run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import click
from starlette.requests import Request
from starlette.responses import Response

from clients.command_line.output import Failure, Listing, Target
from clients.command_line.sessions import Sessions
from clients.errors import KgroupError
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import unknown_group
from clients.kgroup.delete import check_names
from clients.kgroup.reset import listing_of
from clients.kgroup.undo import undo_listing
from clients.resets.journal import Journal
from clients.resets.journalled_offsets import Change, JournalledOffsets
from clients.resets.reset import plan_reset
from clients.resets.undo import undo
from clients.serve.envelope import envelope
from clients.serve.write_access import Refused, WriteAccess, check_access
from clients.serve.write_requests import (
    RESET_FIELDS,
    UNDO_FIELDS,
    BadRequest,
    WriteOptions,
    read_object,
    read_options,
    read_position,
    read_scopes,
)
from protocol.frozen import frozen
from zk.api import ZkError

MAX_BODY_BYTES = 64 * 1024
MAX_GROUP_BYTES = 32_767
"""Most bytes of a string in Kafka's protocol."""
MAX_ID_DIGITS = 18

STATUSES = {
    "NoPosition": 400,
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "GROUP_AUTHORIZATION_FAILED": 403,
    "TOPIC_AUTHORIZATION_FAILED": 403,
    "GROUP_ID_NOT_FOUND": 404,
    "NoSuchEntry": 404,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "CannotUndo": 409,
    "NON_EMPTY_GROUP": 409,
    "OffsetMoved": 409,
    "OffsetsChanged": 409,
}
"""Failure -> status; any other is the cluster's."""
BAD_GATEWAY = 502

Outcome = tuple[Listing, bool]
"""What is shown, and whether something was written."""


@frozen
class Writes:
    """The handlers. One request writes at a time, so that an undo sees what the last one did."""

    sessions: Sessions
    target: Target
    access: WriteAccess | None
    after_write: Callable[[], None]
    _writing: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def reset(self, request: Request) -> Response:
        """Show what a reset of a group would do, or do it."""
        return await self._respond("reset", request, self._reset)

    async def undo(self, request: Request) -> Response:
        """Show what taking a journal entry back would do, or do it."""
        return await self._respond("undo", request, self._undo)

    async def _respond(
        self, kind: str, request: Request, write: Callable[[Request], Awaitable[Outcome]]
    ) -> Response:
        try:
            check_access(self.access, request.headers)
            listing, executed = await write(request)
        except Refused as refused:
            response = envelope(kind, (), [refused.failure], status=refused.status)
            if refused.status == 401:
                response.headers["www-authenticate"] = "Bearer"
            return response
        except BadRequest as error:
            return envelope(kind, (), [Failure.of("request", error)], status=400)
        except (KgroupError, ZkError, OSError) as error:
            return _respond_with(Listing(kind, (), (), [Failure.of(kind, error)]), executed=False)
        return _respond_with(listing, executed=executed)

    async def _reset(self, request: Request) -> Outcome:
        body = read_object(await _read_body(request), RESET_FIELDS)
        options, position, scopes = read_options(body), read_position(body), read_scopes(body)
        group_id = request.path_params["group"]
        async with self._writing:
            await self._check_group(group_id)
            plan = await plan_reset(self.sessions, group_id, position, scopes)
            planned = listing_of("reset", [plan], {}, executed=options.execute)

            # Who asked for several topics did not ask for some of them.
            if planned.errors or not options.execute:
                return planned, False
            offsets = await self._journalled(request, options, body)
            try:
                outcome = await offsets.change(Change.of(plan, "reset", options.reason))
            finally:
                self.after_write()
        return listing_of("reset", [plan], {group_id: outcome}, executed=True), True

    async def _undo(self, request: Request) -> Outcome:
        body = read_object(await _read_body(request), UNDO_FIELDS)
        options = read_options(body)
        id_text = request.path_params["id"]
        if not (id_text.isascii() and id_text.isdecimal() and len(id_text) <= MAX_ID_DIGITS):
            failure = Failure("request", "NoSuchEntry", f"{id_text!r} is not the id of an entry")
            raise Refused(404, failure)

        async with self._writing:
            offsets = await self._journalled(request, options, body)
            try:
                undone = await undo(
                    offsets, int(id_text), dry_run=not options.execute, reason=options.reason
                )
            finally:
                self.after_write()
        return undo_listing(undone), undone.outcome is not None

    async def _check_group(self, group_id: str) -> None:
        """Raise Refused for a group that cannot be, or is not there."""
        try:
            check_names(self.target, [group_id])
        except click.UsageError as error:
            raise Refused(400, Failure.of(group_id, error)) from None
        if len(group_id.encode()) > MAX_GROUP_BYTES:
            raise Refused(400, Failure("request", "BadRequest", "the group's id is too long"))

        facts = await GroupReader(self.sessions).group(group_id)
        # Without its coordinator it is not known, and the plan says so.
        if facts.coordinator is not None and not facts.exists:
            raise Refused(404, unknown_group(group_id))

    async def _journalled(
        self, request: Request, options: WriteOptions, body: Mapping[str, Any]
    ) -> JournalledOffsets:
        address = request.client.host if request.client else "unknown"
        return JournalledOffsets(
            self.sessions,
            await Journal.of(self.sessions.admin, keeps_clients=False),
            who=address if options.who is None else f"{options.who}@{address}",
            command=f"POST {request.url.path} {json.dumps(body)}",
        )


def _respond_with(listing: Listing, *, executed: bool) -> Response:
    status = 200
    if listing.errors:
        status = STATUSES.get(listing.errors[0].error, BAD_GATEWAY)
    return envelope(listing.kind, listing.items, listing.errors, status=status, executed=executed)


async def _read_body(request: Request) -> bytes:
    """Return the body. Raises Refused if it is too large."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY_BYTES:
            text = f"the body has more than {MAX_BODY_BYTES} bytes"
            raise Refused(413, Failure("request", "TooLarge", text))
    return content
