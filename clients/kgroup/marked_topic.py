"""Tell a topic that is marked for deletion from one that does not exist, before somebody writes.

Brokers show neither. A producer asks for it again and again until max.block.ms is over, since one
that does not exist may be created automatically; the name of a marked one is taken instead.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from clients.admin import Admin, NewTopic
from clients.command_line.command_group import CommandFailed
from clients.errors import BrokerError, KgroupError
from protocol.errors import ErrorCode

LOOKS = 5
PAUSE_S = 0.2
"""Time between two looks: a topic that was just created is soon shown."""


async def refuse_marked_topic(
    admin: Admin, topic: str, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Raise CommandFailed for a topic that is marked for deletion."""
    is_marked = False
    # Who may not ask, or asks in vain, learns from the producer why.
    with contextlib.suppress(KgroupError):
        is_marked = await _is_marked(admin, topic, pause)
    if is_marked:
        raise CommandFailed(
            f"topic {topic} is marked for deletion, and takes no messages; its name is free when "
            "all its replicas are deleted: start the brokers that have one"
        )


async def _is_marked(admin: Admin, topic: str, pause: Callable[[float], Awaitable[None]]) -> bool:
    for look in range(LOOKS):
        if look:
            await pause(PAUSE_S)
        try:
            await admin.describe_topics([topic])
            return False
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False

        verdicts = await admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)
        error_of_name = verdicts[topic]
        if error_of_name is None or error_of_name.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
    return True
