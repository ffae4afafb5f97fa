"""Give out producer ids from blocks of 1000, which are reserved in ZooKeeper for this broker alone.

`/latest_producer_id_block` names the block that any broker reserved last. A block is ours once the
write that names it, over the version that was read, is confirmed. When the reply was lost, the next
block is taken, whether or not that write was applied.

The next block is fetched when half of this one is used up, so that a request hardly ever waits.
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

# Kafka's block size (ProducerIdManager).
BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1
RETRY_DELAY_S = 0.1

logger = logging.getLogger(__name__)


class ProducerIdsExhausted(Exception):
    """The last block ends too near the largest possible id."""


def block_after(latest: bytes | None, broker_id: int) -> ProducerIdBlock:
    """Return the block after the one in the znode, which is empty before the first block.

    Raises ZnodeError, ProducerIdsExhausted.
    """
    first = ProducerIdBlock.decode(latest).last + 1 if latest else 0
    if first > LAST_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsExhausted(f"the last block ends with {first - 1}")
    return ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)


@attrs.define(eq=False)
class ProducerIds:
    """Gives out ids. `spawn` runs a task of the broker; `touch` wakes waits for this object."""

    zk: ZkSession
    broker_id: int
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    _blocks: deque[range] = attrs.field(factory=deque)
    _is_fetching: bool = False

    def prepare(self) -> None:
        """Have the next block fetched if at most half of one is left, and take no id."""
        if sum(map(len, self._blocks)) <= BLOCK_SIZE // 2 and not self._is_fetching:
            self._is_fetching = True
            self.spawn(self._fetch())

    def take(self) -> int | None:
        """Return the next id; None while a block is fetched, after which this object is touched."""
        self.prepare()
        if not self._blocks:
            return None

        # Ids leave from the oldest block on.
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    async def _fetch(self) -> None:
        is_reserved = False
        try:
            while self.zk.state is not SessionState.CLOSED:
                try:
                    block = await self._reserve()
                except NoNode:
                    raise  # a node that is created again would give out ids a second time
                except ZkError as error:
                    # A refusal (ACL, quota) lasts; a conflict or a lost connection does not.
                    if find_cause(error) is FailureCause.REFUSAL:
                        raise
                    await asyncio.sleep(RETRY_DELAY_S)
                    continue

                self._blocks.append(range(block.first, block.last + 1))
                logger.info("producer ids %d to %d are this broker's", block.first, block.last)
                is_reserved = True
                break
        except (ZkError, ZnodeError, ProducerIdsExhausted) as error:
            logger.error("no producer ids can be reserved: %s", error)
        finally:
            # The next request tries again; those that wait do so when their time is up.
            self._is_fetching = False

        # Wake them for a block alone: without one each would have it fetched again at once.
        if is_reserved:
            self.touch(self)

    async def _reserve(self) -> ProducerIdBlock:
        # The write fails if another broker has reserved this block meanwhile.
        data, stat = await self.zk.get(ProducerIdBlock.path())
        block = block_after(data, self.broker_id)
        await self.zk.set(ProducerIdBlock.path(), block.encode(), stat.version)
        return block
