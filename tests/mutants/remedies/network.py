"""Remedies in connections, frames and the handling of requests."""

from tests.mutants.remedy import Remedy

CONNECTION = "tests/broker/network/test_connection.py"
FILES = "tests/broker/network/test_connection_files.py"
APART = "tests/broker/test_produce_apart.py"

TESTS: dict[str, str] = {
    "broker.network.turns": "tests/broker/network/test_turns.py",
    "broker.network.queued_bytes": "tests/broker/network/test_queued_bytes.py",
    "broker.network.listener": "tests/broker/network/test_listener.py",
    "broker.handlers.produce": APART,
    "core_log.appending.validator": APART,
    "protocol.frames": "tests/protocol/test_frames.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "P6",
        "a frame's buffer grows with what has come",
        "protocol.frames:FrameCutter.cut",
        "self._missing = size",
        "self._missing = self._gathered = size",
    ),
    Remedy(
        "P6",
        "small pieces of a frame are put together",
        "protocol.frames:FrameCutter._keep",
        "len(piece) >= SMALL_BYTES",
        "True",
    ),
    Remedy(
        "P6",
        "what connections hold is counted",
        "broker.network.connection:ClientConnection._count",
        "self.queued.update(self, held_bytes)",
        "pass",
        CONNECTION,
    ),
    Remedy(
        "P6",
        "beyond the limit no connection is read",
        "broker.network.connection:ClientConnection._pause_or_resume_reading",
        "self._is_short_of_memory or self._is_throttled or self._cutter.has_more",
        "self._is_throttled or self._cutter.has_more",
        CONNECTION,
    ),
    Remedy(
        "P6",
        "of frames that fill the limit the oldest comes to its end",
        "broker.network.queued_bytes:QueuedBytes._favour",
        "oldest.resume_reading()",
        "pass",
    ),
    Remedy(
        "P6",
        "connections of brokers are read however short memory is",
        "broker.network.queued_bytes:QueuedBytes._stop_reading",
        "reader.is_brokers",
        "False",
    ),
    Remedy(
        "P6",
        "as many go on as there is room for",
        "broker.network.queued_bytes:QueuedBytes._resume_readers",
        "max(1, (self.limit - self.total) // READ_BYTES)",
        "len(self._paused)",
    ),
    Remedy(
        "P9",
        "what came compressed is checked in a thread when it is much",
        "broker.handlers.produce:handle",
        "effort.rewritten_bytes or not effort.is_little",
        "False",
    ),
    Remedy(
        "P9",
        "what decompresses to much is checked in a thread",
        "broker.handlers.produce:_check_little",
        "room = LITTLE_DECOMPRESSED_BYTES",
        "room = MAX_PRODUCED_BYTES",
    ),
    Remedy(
        "P9",
        "many batches that decompress to little are much together",
        "broker.handlers.produce:_check_little",
        "room -= part.run_check(room)",
        "part.run_check(room)",
    ),
    Remedy(
        "P9",
        "all batches of a request share a bound",
        "broker.handlers.produce:_check_in_thread",
        "room -= part.run_check(room)",
        "part.run_check(room)",
    ),
    Remedy(
        "P9",
        "very many records are walked over in a thread",
        "core_log.appending.validator:effort_of",
        "Effort(len(records) if rewrites else 0, count)",
        "Effort(len(records) if rewrites else 0, 0)",
    ),
    Remedy(
        "P9",
        "what a topic writes anew is checked in a thread",
        "core_log.appending.validator:effort_of",
        "codec != Codec.NONE or (config is not None and _is_written_anew(config))",
        "codec != Codec.NONE",
    ),
    Remedy(
        "P9",
        "times in compressed batches are looked up in a thread",
        "core_log.segments.segment_list:is_cheap_to_read",
        "header is None or not header.codec",
        "True",
        "tests/broker/test_list_offsets.py",
    ),
    Remedy(
        "P11",
        "connections leave descriptors to the logs",
        "broker.network.listener:Listener._admit",
        "connection.descriptor >= self.descriptor_limit - reserve",
        "False",
    ),
    Remedy(
        "P11",
        "what fails to be accepted is tried a few times a turn",
        "broker.network.listener:Listener.serve",
        "loop.create_server(protocol, sock=bound, backlog=ACCEPTED_PER_TURN)",
        "loop.create_server(protocol, sock=bound, backlog=BACKLOG)",
    ),
    Remedy(
        "P17",
        "a share is over by the number of requests",
        "broker.network.turns:Share.is_used_up",
        "self.requests >= SHARE_REQUESTS or self.seconds >= SHARE_S",
        "self.seconds >= SHARE_S",
    ),
    Remedy(
        "P17",
        "a share is over by the clock",
        "broker.network.turns:Share.is_used_up",
        "self.requests >= SHARE_REQUESTS or self.seconds >= SHARE_S",
        "self.requests >= SHARE_REQUESTS",
    ),
    Remedy(
        "P17",
        "a turn of the loop spends so much on requests",
        "broker.network.turns:Turns._serve_line",
        "self._spent_s >= TURN_S",
        "False",
    ),
    Remedy(
        "P17",
        "the active controller comes first",
        "broker.network.turns:Turns.line_up",
        "self.is_controller(connection.number)",
        "False",
    ),
    Remedy(
        "P17",
        "who comes anew is served before those who are behind",
        "broker.network.turns:Turns._turn",
        "self._serve_line(self._fresh, FRESH_REQUESTS)",
        "self._behind.extend(self._fresh); self._fresh.clear()",
    ),
    Remedy(
        "P17",
        "who comes anew is served a request first",
        "broker.network.turns:Turns._turn",
        "self._serve_line(self._fresh, FRESH_REQUESTS)",
        "self._serve_line(self._fresh, SHARE_REQUESTS)",
    ),
    Remedy(
        "L2",
        "what is not in the page cache is read in by a thread",
        "broker.network.connection:ClientConnection._read_in",
        "not part.is_cached",
        "False",
        FILES,
    ),
    Remedy(
        "L5",
        "small ranges are joined up to a bound",
        "broker.network.response_parts:is_small",
        "file_bytes <= SMALL_BYTES and all(is_at_hand(part) for part in parts)",
        "all(is_at_hand(part) for part in parts)",
        FILES,
    ),
)
"""A remedy: a piece of code without which a fault, or a hazard, is back."""
