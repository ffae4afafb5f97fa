"""Small logs of all kinds in `segments/`, and how Kafka 2.8.2 dumps each of them.

A folder has the files of a partition, what DumpLogSegments printed of them (`stock.out`), and what
it said on stderr (`stock.err`, with DIRECTORY for the folder's path). The interop test holds the
stock tool to these texts.
"""

from pathlib import Path

SEGMENTS = Path(__file__).parents[1] / "segments"
DIRECTORY = "DIRECTORY"
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

OPTIONS = {
    "bad_crc": ("--print-data-log",),
    "indexes": (),
    "indexes_active": (),
    "indexes_empty": (),
    "indexes_mismatch": (),
    "indexes_older": (),
    "indexes_padding": (),
    "indexes_run": (),
    "indexes_torn": (),
    "offsets": ("--offsets-decoder",),
    "producers": (),
    "tombstone": ("--print-data-log",),
    "trailing": ("--print-data-log",),
    "transactions": ("--transaction-log-decoder",),
    "v0": ("--print-data-log",),
    "v0_bad_crc": ("--print-data-log",),
    "v1": ("--print-data-log",),
    "v2": ("--print-data-log",),
}
"""Each folder, with the options it was dumped with."""


def files_of(case: str) -> str:
    """The files of a folder as `--files` wants them, to be given in that folder."""
    names = [path.name for path in (SEGMENTS / case).iterdir() if path.suffix in KINDS]
    return ",".join(sorted(names, key=lambda name: (KINDS.index(Path(name).suffix), name)))


def stock_output(case: str) -> str:
    """What the stock tool printed."""
    return (SEGMENTS / case / "stock.out").read_text()


def stock_errors(case: str) -> str:
    """What it said on stderr."""
    path = SEGMENTS / case / "stock.err"
    text = path.read_text() if path.exists() else ""
    return text.replace(DIRECTORY, str(SEGMENTS / case))
