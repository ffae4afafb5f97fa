"""A machine that never replies: it neither accepts nor refuses a connection."""

import contextlib
import socket
from collections.abc import Iterator

_MORE_THAN_THE_BACKLOG = 4


@contextlib.contextmanager
def silent_host() -> Iterator[str]:
    """Yield a host:port where the backlog is full, so that the kernel drops connections."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(_MORE_THAN_THE_BACKLOG):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listening.getsockname())
        host, port = listening.getsockname()
        yield f"{host}:{port}"
