"""Files with secrets, which only their owner may read."""

from pathlib import Path

_PRIVATE = 0o600


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in the place of one that is there."""
    # Under its name the file is never readable for others, and never incomplete.
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(_PRIVATE, exist_ok=False)
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)
