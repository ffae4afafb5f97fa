"""What reading record bytes may raise: the bytes are the peer's fault, never ours."""


class CorruptRecord(ValueError):
    """Bytes that are not a record batch, or one that lies about itself (CORRUPT_MESSAGE)."""


class UnsupportedMagic(CorruptRecord):
    """A record format other than v2: `magic` says which (0 and 1 are the legacy message sets)."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic} is not supported, only 2")
        self.magic = magic
