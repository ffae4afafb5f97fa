"""Readers and writers of messages, compiled from the declarations of `protocol.wire`.

`reader(cls, version)` and `writer(cls, version)` compile a function without branches on first use
and keep it; neighbouring fields of fixed width share one `struct` call. Records that are a range of
a file leave a *hole*, which the caller fills, so that they need not pass through Python. So do the
chunks of an `EncodedArray`, which are large together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import attrs

from protocol.bounds import MAX_ERROR_CHARACTERS, MAX_STRING_BYTES
from protocol.misfits import explain_misfit
from protocol.primitives import WireError, read_uvarint, uvarint
from protocol.text import REPLACE
from protocol.wire import (
    BYTES,
    RECORDS,
    STRING,
    Array,
    WireField,
    WireType,
    declared_fields,
    fields,
    is_flexible,
)

Buffer = bytes | memoryview
# Where records or a chunk belong in the output, and what will fill that place.
Hole = tuple[int, Any]
# From bytes, position and limit to the value and the position after it.
Reader = Callable[[Buffer, int, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any, list[Hole]], None]
Named = tuple[str, WireField]
Tagged = dict[int, Named]


class Encoded(NamedTuple):
    """A message of class `kind`, or an element of one of its arrays, that is encoded already."""

    kind: type
    body: bytes


class Chunk(NamedTuple):
    """Bytes in memory that belong into a hole."""

    body: bytes

    @property
    def size(self) -> int:
        """Its number of bytes, as a range of a file has one."""
        return len(self.body)


class TooManyElements(WireError):
    """The arrays of a message have more elements, or it has more tagged fields, than allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its arrays have more than {most} elements")


class EncodedArray:
    """The elements of an array of a message, encoded already, several in each of the chunks.

    The array is not within a tagged field.
    """

    def __init__(self, count: int, chunks: Sequence[Encoded]) -> None:
        self._count = count
        self._chunks = chunks

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Encoded]:
        return iter(self._chunks)

    def leave_holes(self, position: int, holes: list[Hole]) -> None:
        """Add a hole for each chunk, all at the same position of the message."""
        holes += [(position, Chunk(chunk.body)) for chunk in self._chunks]


# How many more elements the message may have that is being read, and how many in all; None: any
# number.
_room: ContextVar[list[int] | None] = ContextVar("room", default=None)


def decode(cls: type, version: int, buf: Buffer, pos: int = 0) -> tuple[Any, int]:
    """Read a message; return it and the position after it. Raises WireError."""
    # Bytes that end early raise the errors of `struct` and of indexing in the compiled code.
    try:
        return reader(cls, version)(buf, pos, len(buf))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from error


def decode_bounded(
    cls: type, version: int, buf: Buffer, pos: int, max_elements: int
) -> tuple[Any, int]:
    """Read a message with so many elements of arrays and tagged fields at most, together.

    An element costs many times its bytes in memory, and time on the event loop. Raises WireError.
    """
    # An element takes a byte at least.
    if len(buf) <= max_elements:
        return decode(cls, version, buf, pos)
    before = _room.set([max_elements, max_elements])
    try:
        return decode(cls, version, buf, pos)
    finally:
        _room.reset(before)


def _take_room(elements: int) -> None:
    """Count the elements of an array, or the tagged fields of a struct, before they are read."""
    room = _room.get()
    if room is not None:
        room[0] -= elements
        if room[0] < 0:
            raise TooManyElements(room[1])


def encode(value: Any, version: int) -> bytes:
    """Encode a message whose records, if any, are in memory. Raises WireError."""
    out = bytearray()
    holes: list[Hole] = []
    encode_into(out, value, version, holes)
    assert not holes, "a file range has no bytes here: use encode_into"
    return bytes(out)


def encode_element(value: Any, message: type, version: int) -> Encoded:
    """Encode an element of an array of a message ahead of it. It has no records."""
    out = bytearray()
    holes: list[Hole] = []
    _write_struct(value.__class__, version, is_flexible(message, version))(out, value, holes)
    # It may have an array of its own that is encoded already.
    begin = 0
    pieces: list[bytes | bytearray] = []
    for position, chunk in holes:
        pieces += [out[begin:position], chunk.body]
        begin = position
    return Encoded(value.__class__, b"".join([*pieces, out[begin:]]))


def encode_into(out: bytearray, value: Any, version: int, holes: list[Hole]) -> None:
    """Append a message to `out`, and to `holes` the records that are in files. Raises WireError."""
    # The compiled code checks no types: a wrong value fails where it is packed or measured.
    try:
        writer(value.__class__, version)(out, value, holes)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        # Python's own words would name neither field nor value (fault strangers-169, was: error).
        reason = explain_misfit(value, version) or error
        raise WireError(f"{type(value).__name__} v{version}: {reason}") from error


@cache
def reader(cls: type, version: int) -> Reader:
    """Return the compiled reader for a version of a message."""
    return _read_struct(cls, version, is_flexible(cls, version))


@cache
def writer(cls: type, version: int) -> Writer:
    """Return the compiled writer for a version of a message."""
    return _write_struct(cls, version, is_flexible(cls, version))


class _Source:
    """The source text of a function, and its globals.

    `pending` holds neighbouring fields of fixed width, as (struct code, variable or value), until
    one `struct` call reads or writes all of them.
    """

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.globals: dict[str, Any] = {"WireError": WireError, "read_uvarint": read_uvarint}
        self.globals.update(uvarint=uvarint, memoryview=memoryview)
        self.pending: list[tuple[str, str]] = []
        self.names = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " + line for line in lines]

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def bind(self, prefix: str, value: Any) -> str:
        """Make `value` a global of the function; return its name."""
        name = self.name(prefix)
        self.globals[name] = value
        return name

    def compile(self, function: str) -> Any:
        assert not self.pending, "a field would be neither read nor written"
        # The source is made of our declarations alone, and of nothing that a peer sends.
        exec("\n".join(self.lines), self.globals)
        return self.globals[function]


def _split_fields(cls: type, version: int) -> tuple[list[Named], Tagged]:
    """Return the fields without a tag, in wire order, and the tagged fields by their tag."""
    untagged: list[Named] = []
    tagged: Tagged = {}
    for name, field in fields(cls, version):
        if field.tag is None:
            untagged.append((name, field))
        else:
            assert field.tag not in tagged, f"{cls.__name__} has tag {field.tag} twice"
            tagged[field.tag] = (name, field)
    return untagged, tagged


# ---- reading


@cache
def _read_struct(cls: type, version: int, flexible: bool) -> Reader:
    source = _Source("def read(buf, pos, limit):")
    values = {}
    untagged, tagged = _split_fields(cls, version)

    # Fields without a tag, in wire order. The last of them may still be pending at the end.
    for name, field in untagged:
        null = field.may_be_null(version)
        values[name] = _read_value(source, field.type, version, flexible, null, name)
    _flush_reads(source)

    # Tagged fields end each struct of a flexible version (KIP-482).
    if flexible:
        values |= _read_tags(source, tagged, version)

    # To set each field takes half as long as a call with keywords.
    source.globals.update(cls=cls, new=object.__new__)
    source.add("m = new(cls)")
    for name, field in declared_fields(cls):
        if name not in values:
            # This version does not carry it.
            assert field.default is not attrs.NOTHING, f"{cls.__name__}.{name} has no default"
            values[name] = source.bind("default", field.default)
        source.add(f"m.{name} = {values[name]}")
    source.add("return m, pos")
    compiled: Reader = source.compile("read")
    return compiled


def _flush_reads(source: _Source) -> None:
    """Read all pending fields in one `struct` call."""
    if not source.pending:
        return

    layout = struct.Struct(">" + "".join(code for code, _ in source.pending))
    unpack = source.bind("unpack", layout.unpack_from)
    targets = ", ".join(target for _, target in source.pending)
    # With the comma a single field is unpacked like many.
    source.add(f"{targets}, = {unpack}(buf, pos)", f"pos += {layout.size}")
    source.pending.clear()


def _read_value(
    source: _Source, kind: Any, version: int, flexible: bool, null: bool, name: str
) -> str:
    """Add the reading of a value; return the variable that holds it."""
    target = source.name("v")
    if isinstance(kind, Array):
        _read_array(source, kind, version, flexible, null, target, name)
    elif not isinstance(kind, WireType):
        # A nested struct has a reader of its own.
        _flush_reads(source)
        read = source.bind("read", _read_struct(kind, version, flexible))
        source.add(f"{target}, pos = {read}(buf, pos, limit)")
    elif kind.code:
        # It is read together with its neighbours.
        source.pending.append((kind.code, target))
    else:
        _read_sized(source, kind, flexible, null, target, name)
    return target


def _read_length(source: _Source, code: str, flexible: bool) -> str:
    length = source.name("n")
    if flexible:
        # Compact lengths are stored plus one, so that 0 is null.
        _flush_reads(source)
        _read_uvarint(source, length)
        source.add(f"{length} -= 1")
    else:
        # The length closes a group of fields: where the next field begins depends on it.
        source.pending.append((code, length))
        _flush_reads(source)
    return length


def _read_uvarint(source: _Source, target: str) -> None:
    """Add the reading of an unsigned varint. Nearly all take one byte, which needs no call."""
    source.add(
        f"{target} = buf[pos]",
        "pos += 1",
        f"if {target} >= 0x80: {target}, pos = read_uvarint(buf, pos - 1)",
    )


def _check_length(source: _Source, length: str, null: bool, name: str) -> None:
    """Refuse a length beyond the end of the message before anything is allocated for it."""
    lowest = -1 if null else 0
    source.add(
        f"if {length} < {lowest} or {length} > limit - pos:",
        f"    raise WireError(f'{name}: length {{{length}}} at byte {{pos}} of {{limit}}')",
    )


def _read_sized(
    source: _Source, kind: WireType, flexible: bool, null: bool, target: str, name: str
) -> None:
    length = _read_length(source, "h" if kind is STRING else "i", flexible)
    _check_length(source, length, null, name)

    if kind is STRING and flexible:
        # Two bytes have no longer one, and Kafka takes none (fault security-3).
        source.add(
            f"if {length} > {MAX_STRING_BYTES}:",
            f"    raise WireError(f'{name}: a string of {{{length}}} bytes')",
        )

    # Kafka reads what is no UTF-8 too (fault strangers-149, was: "strict").
    malformed = REPLACE
    # Records are large and stay a view of the request. Other bytes are copied.
    take = {
        STRING: f"str(buf[pos:pos + {{n}}], 'utf-8', {malformed!r}) if {{n}} else ''",
        BYTES: "bytes(buf[pos:pos + {n}])",
        RECORDS: "memoryview(buf)[pos:pos + {n}]",
    }[kind].format(n=length)
    if null:
        source.add(f"if {length} < 0:", f"    {target} = None", "else:")
        source.add(f"    {target} = {take}", f"    pos += {length}")
    else:
        source.add(f"{target} = {take}", f"pos += {length}")


def _read_array(
    source: _Source, kind: Array, version: int, flexible: bool, null: bool, target: str, name: str
) -> None:
    length = _read_length(source, "i", flexible)
    # The bound of a length holds for a count too: an element takes a byte at least.
    _check_length(source, length, null, name)
    # Single elements need not be counted: no array has more of them than it has elements.
    source.globals["take_room"] = _take_room
    source.add(f"if {length} > 1: take_room({length})")
    if null:
        source.add(f"{target} = None", f"if {length} >= 0:")
    else:
        # The reading of the elements is indented, so it needs a block in both cases.
        source.add("if True:")

    # Elements of fixed width: one call reads all of them.
    element = kind.of
    if isinstance(element, WireType) and element.code:
        unpack = source.bind("unpack", struct.unpack_from)
        width = struct.calcsize(">" + element.code)
        source.add(
            f"    {target} = {unpack}(f'>{{{length}}}{element.code}', buf, pos)",
            f"    pos += {length} * {width}",
        )
        return

    # All others: a reader for each element.
    items = source.name("a")
    item = source.name("e")
    read = source.bind("read", _element_reader(element, version, flexible))
    source.add(
        f"    {items} = []",
        f"    for _ in range({length}):",
        f"        {item}, pos = {read}(buf, pos, limit)",
        f"        {items}.append({item})",
        f"    {target} = tuple({items})",
    )


@cache
def _element_reader(kind: Any, version: int, flexible: bool) -> Reader:
    if not isinstance(kind, WireType):
        return _read_struct(kind, version, flexible)

    source = _Source("def read(buf, pos, limit):")
    _read_sized(source, kind, flexible, False, "value", kind.name)
    source.add("return value, pos")
    compiled: Reader = source.compile("read")
    return compiled


def _read_tags(source: _Source, tagged: Tagged, version: int) -> dict[str, str]:
    """Add the reading of the tagged fields, which skips unknown tags; return the variables."""
    variables = {}
    # A field whose tag is absent has its default.
    for tag, (name, field) in sorted(tagged.items()):
        default = source.bind("default", field.default)
        source.add(f"tag{tag} = {default}")
        variables[name] = f"tag{tag}"

    # Tags come with their sizes, so that a reader can skip those that it does not know.
    _read_uvarint(source, "count")
    source.globals["take_room"] = _take_room
    # An unknown tag is skipped, but not for nothing (fault security-3).
    source.add("if count: take_room(count)")
    source.add(
        "for _ in range(count):",
        "    tag, pos = read_uvarint(buf, pos)",
        "    size, pos = read_uvarint(buf, pos)",
        "    end = pos + size",
        "    if end > limit: raise WireError(f'tagged field {tag} of {size} bytes is cut')",
    )

    for tag, (_, field) in sorted(tagged.items()):
        single = source.bind("read", _tag_reader(field.type, version))
        source.add(f"    if tag == {tag}: tag{tag} = {single}(buf, pos, end)[0]")

    # A later version may have made the field longer than we know it.
    source.add("    pos = end")
    return variables


@cache
def _tag_reader(kind: Any, version: int) -> Reader:
    source = _Source("def read(buf, pos, limit):")
    value = _read_value(source, kind, version, True, False, "tagged field")
    _flush_reads(source)
    source.add(f"return {value}, pos")
    compiled: Reader = source.compile("read")
    return compiled


# ---- writing


@cache
def _write_struct(cls: type, version: int, flexible: bool) -> Writer:
    source = _Source("def write(out, m, holes):")
    untagged, tagged = _split_fields(cls, version)

    for name, field in untagged:
        null = field.may_be_null(version)
        value = f"m.{name}"
        # An error quotes what its client sent. One that has no room for it would keep the client
        # from learning of all else that it asked for, and that is done (fault strangers-26).
        if name.endswith("error_message"):
            value = _shorten(source, value)
        _write_value(source, field.type, version, flexible, null, value)
    _flush_writes(source)
    if flexible:
        _write_tags(source, tagged, version)

    # A struct without fields needs a body too.
    source.add("return None")
    compiled: Writer = source.compile("write")
    return compiled


def _shorten(source: _Source, value: str) -> str:
    """Add the shortening of a text for people, or of null; return the expression of the result."""
    text = source.name("t")
    shorten = source.bind("shorten", shortened)
    source.add(
        f"{text} = {value}",
        f"if {text} and len({text}) > {MAX_ERROR_CHARACTERS}: {text} = {shorten}({text})",
    )
    return text


def shortened(text: str) -> str:
    """Return a text without its middle: mostly what is wrong stands at the begin or at the end."""
    half = MAX_ERROR_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"


def _flush_writes(source: _Source) -> None:
    """Write all pending fields in one `struct` call."""
    if not source.pending:
        return

    layout = struct.Struct(">" + "".join(code for code, _ in source.pending))
    pack = source.bind("pack", layout.pack)
    values = ", ".join(value for _, value in source.pending)
    source.add(f"out += {pack}({values})")
    source.pending.clear()


def _write_value(
    source: _Source, kind: Any, version: int, flexible: bool, null: bool, value: str
) -> None:
    if isinstance(kind, Array):
        _write_array(source, kind, version, flexible, null, value)
    elif not isinstance(kind, WireType):
        _flush_writes(source)
        write = source.bind("write", _write_struct(kind, version, flexible))
        source.add(f"{write}(out, {value}, holes)")
    elif kind.code:
        source.pending.append((kind.code, value))
    elif kind is RECORDS:
        _write_records(source, flexible, null, value)
    else:
        _write_sized(source, kind, flexible, null, value)


def _write_length(source: _Source, code: str, flexible: bool, length: str) -> None:
    if flexible:
        _flush_writes(source)
        # Nearly all lengths take one byte, which needs no call.
        source.add(
            f"if {length} < 0x7F: out.append({length} + 1)",
            f"else: out += uvarint({length} + 1)",
        )
    else:
        source.pending.append((code, length))
        _flush_writes(source)


def _write_sized(source: _Source, kind: WireType, flexible: bool, null: bool, value: str) -> None:
    # Encode first: the length counts bytes, not characters.
    body = source.name("b")
    length = source.name("n")
    text = f"{value}.encode()" if kind is STRING else value
    if null:
        source.add(f"{body} = None if {value} is None else {text}")
        source.add(f"{length} = -1 if {body} is None else len({body})")
    else:
        source.add(f"{body} = {text}", f"{length} = len({body})")

    if kind is STRING and flexible:
        # No broker takes more: it would close the connection (fault strangers-170).
        source.add(f"if {length} > {MAX_STRING_BYTES}: raise TypeError('a string is too long')")
    _write_length(source, "h" if kind is STRING else "i", flexible, length)
    source.add(f"if {length} > 0: out += {body}")


def _write_records(source: _Source, flexible: bool, null: bool, value: str) -> None:
    """Add the writing of records: bytes, or a hole for anything with a `size`."""
    body = source.name("b")
    size = source.name("s")
    length = source.name("n")
    # Where null is not legal, no records are written as empty ones.
    absent = -1 if null else 0
    source.add(
        f"{body} = {value}",
        f"{size} = getattr({body}, 'size', None)",
        f"{length} = {absent} if {body} is None else len({body}) if {size} is None else {size}",
    )
    _write_length(source, "i", flexible, length)
    source.add(
        f"if {size} is not None: holes.append((len(out), {body}))",
        f"elif {length} > 0: out += {body}",
    )


def _write_array(
    source: _Source, kind: Array, version: int, flexible: bool, null: bool, value: str
) -> None:
    items = source.name("a")
    length = source.name("n")
    source.add(f"{items} = {value}")
    if null:
        source.add(f"{length} = -1 if {items} is None else len({items})")
    else:
        source.add(f"{length} = len({items})")
    _write_length(source, "i", flexible, length)

    # Elements of fixed width: one call writes all of them.
    element = kind.of
    if isinstance(element, WireType) and element.code:
        pack = source.bind("pack", struct.pack)
        source.add(f"if {length} > 0: out += {pack}(f'>{{{length}}}{element.code}', *{items})")
        return

    # All others: a writer for each element that is not encoded already.
    write = source.bind("write", _element_writer(element, version, flexible))
    encoded = source.bind("Encoded", Encoded)
    many = source.bind("EncodedArray", EncodedArray)
    # To join what is large takes a turn of the loop for itself (fault security-5).
    source.add(f"if {items}.__class__ is {many}: {items} = {items}.leave_holes(len(out), holes)")
    source.add(
        f"for e in {items} or ():",
        f"    if e.__class__ is {encoded}: out += e.body",
        f"    else: {write}(out, e, holes)",
    )


@cache
def _element_writer(kind: Any, version: int, flexible: bool) -> Writer:
    if not isinstance(kind, WireType):
        return _write_struct(kind, version, flexible)

    source = _Source("def write(out, m, holes):")
    _write_sized(source, kind, flexible, False, "m")
    compiled: Writer = source.compile("write")
    return compiled


def _write_tags(source: _Source, tagged: Tagged, version: int) -> None:
    """Add the writing of the tagged fields whose values are not the defaults."""
    # The struct ends with the number of tagged fields.
    if not tagged:
        source.add("out.append(0)")
        return

    source.add("tags = []")
    for tag, (name, field) in sorted(tagged.items()):
        default = source.bind("default", field.default)
        write = source.bind("write", _tag_writer(field.type, version))
        source.add(f"if m.{name} != {default}: tags.append(({tag}, {write}, m.{name}))")

    # A field's size comes before it, so it is first written aside.
    source.add(
        "out += uvarint(len(tags))",
        "for tag, write, value in tags:",
        "    body = bytearray()",
        "    write(body, value, holes)",
        "    out += uvarint(tag) + uvarint(len(body)) + body",
    )


@cache
def _tag_writer(kind: Any, version: int) -> Writer:
    source = _Source("def write(out, m, holes):")
    _write_value(source, kind, version, True, False, "m")
    _flush_writes(source)
    source.add("return None")
    compiled: Writer = source.compile("write")
    return compiled
