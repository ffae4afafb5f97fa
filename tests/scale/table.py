"""All rows: what is done by the number, and how its cost may grow."""

from collections.abc import Sequence
from typing import Protocol

from tests.scale.cost import Cost
from tests.scale.rows import ROWS
from tests.scale.spark import SPARK_ROWS, TASK_ROWS
from tests.scale.tools import TOOL_ROWS
from tests.scale.zookeeper import ZOOKEEPER_ROWS


class AnyRow(Protocol):
    """A piece of work on `size` of something."""

    @property
    def name(self) -> str: ...
    @property
    def turn_bound(self) -> int | None: ...
    @property
    def sizes(self) -> Sequence[int]: ...
    def measure(self, size: int) -> Cost: ...


ALL_ROWS: tuple[AnyRow, ...] = (*ROWS, *ZOOKEEPER_ROWS, *TOOL_ROWS, *SPARK_ROWS, *TASK_ROWS)
