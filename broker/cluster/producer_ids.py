"""Producer ids that are this broker's alone to give out: blocks of 1000, reserved in ZooKeeper.

`/latest_producer_id_block` names the block that was reserved last, by whichever broker. A block
is ours when the write that names it, over the version that was read, has been confirmed; when the
answer was lost, whatever may have become of that write, the next block is taken.

The next block is fetched when half of this one is gone, so that a request hardly ever waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import attrs

from zk.api import NoNode, SessionState, ZkError, ZkSession
from zk.failures import FailureCause, find_cause
from zk.znodes import ProducerIdBlock, ZnodeError

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1
RETRY_SECONDS = 0.1

logger = logging.getLogger(__name__)


class ProducerIdsExhausted(Exception):
    """The last block ends too near the largest id there is."""


def block_after(latest: bytes | None, broker_id: int) -> ProducerIdBlock:
    """The block that follows the one in the znode, which is empty before the first.

    Raises ZnodeError, ProducerIdsExhausted.
    """
    first = ProducerIdBlock.decode(latest).last + 1 if latest else 0
    if first > LAST_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsExhausted(f"the last block ends with {first - 1}")
    return ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)


@attrs.define(eq=False)
class ProducerIds:
    """Gives out ids. `spawn` runs a task of the broker; `touch` wakes who waits for this object."""

    zk: ZkSession
    broker_id: int
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    _blocks: deque[range] = attrs.field(factory=deque)
    _fetching: bool = False

    def take(self) -> int | None:
        """The next id; None while a block is fetched, after which this object is touched."""
        if sum(map(len, self._blocks)) <= BLOCK_SIZE // 2 and not self._fetching:
            self._fetching = True
            self.spawn(self._fetch())
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    async def _fetch(self) -> None:
        try:
            while self.zk.state is not SessionState.CLOSED:
                try:
                    block = await self._reserve()
                except NoNode:
                    raise  # a node made anew would give ids a second time
                except ZkError as error:
                    if find_cause(error) is FailureCause.REFUSAL:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._blocks.append(range(block.first, block.last + 1))
                logger.info("producer ids %d to %d are this broker's", block.first, block.last)
                break
            self._fetching = False
            self.touch(self)
        except (ZkError, ZnodeError, ProducerIdsExhausted) as error:
            logger.error("no producer ids can be had: %s", error)
        finally:
            self._fetching = False  # who waits asks again when its time is up

    async def _reserve(self) -> ProducerIdBlock:
        data, stat = await self.zk.get(ProducerIdBlock.path())
        block = block_after(data, self.broker_id)
        await self.zk.set(ProducerIdBlock.path(), block.encode(), stat.version)
        return block
