"""The toy client of docs/testing.md, with its bug and its test."""

import re
from pathlib import Path

from tests.stage.processes import ROOT

GUIDE = ROOT / "docs" / "testing.md"


def write_toy(directory: Path) -> None:
    """Write the toy and its test into a directory, as the guide has them."""
    for name in ("billing.py", "test_billing.py"):
        (directory / name).write_text(_block(f'"""{name}"""'))


def correct_toy(directory: Path) -> None:
    """Let the function that the guide has in the place of the bug be the one that counts."""
    with (directory / "billing.py").open("a") as billing:
        billing.write("\n\n" + _block("async def bill_batch"))


def _block(beginning: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if block.startswith(beginning))
    return str(block)
