"""Becoming the controller: one multi that creates /controller and raises /controller_epoch.

Because both happen or neither, no two controllers ever have the same epoch, and a write that
checks the version of /controller_epoch is a write of the controller of that epoch (KAFKA-6082).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from broker.controller.events import Elected, ElectionLost
from broker.zk_retry import retry_until_connected
from zk.api import Create, MultiFailed, NodeExists, NoNode, Op, SetData, Stat, Watch, ZkSession
from zk.znodes import Controller, ControllerEpoch, ZnodeError

logger = logging.getLogger(__name__)

FIRST_EPOCH = 1


async def elect(
    zk: ZkSession,
    broker_id: int,
    now_ms: Callable[[], int],
    watch: Watch,
    *,
    reigning: bool,
    beyond: int = 0,
) -> Elected | ElectionLost | None:
    """See who the controller is; when nobody is, become it. `watch` is left on /controller.

    None when this broker is the controller and knows it (`reigning`). The epoch is larger than
    `beyond`. Raises SessionExpired, and ZnodeError when /controller_epoch cannot be read.
    """
    while True:
        found = await _controller(zk, watch)
        if found is None:
            elected = await _stand(zk, broker_id, now_ms(), beyond)
            if elected is not None:
                return elected
            continue  # somebody was quicker
        controller_id, owner = found
        if owner != zk.session_id:
            # our id, but not our session: this broker's last life, which is about to end
            return ElectionLost(-1 if controller_id == broker_id else controller_id)
        if reigning:
            return None
        await _give_up(zk)


async def _controller(zk: ZkSession, watch: Watch) -> tuple[int, int] | None:
    """The controller's id (-1 when it cannot be read) and session; None when there is none."""
    while True:
        try:
            data, stat = await retry_until_connected(
                zk, lambda: zk.get(Controller.path(), watch=watch)
            )
        except NoNode:
            gone = await retry_until_connected(
                zk, lambda: zk.exists(Controller.path(), watch=watch)
            )
            if gone is None:
                return None
            continue
        try:
            return Controller.decode(data).broker_id, stat.ephemeral_owner
        except ZnodeError as error:
            if not stat.ephemeral_owner:
                logger.error("%s; no controller is elected until the node is deleted", error)
            return -1, stat.ephemeral_owner


async def _stand(zk: ZkSession, broker_id: int, now_ms: int, beyond: int) -> Elected | None:
    """Try to be elected; None when the try has failed because another one did not."""
    known, version = await _epoch(zk)
    epoch = max(known, beyond) + 1
    mine = Controller(broker_id=broker_id, timestamp_ms=now_ms)
    ops: list[Op] = [
        Create(Controller.path(), mine.encode(), ephemeral=True),
        SetData(ControllerEpoch.path(), ControllerEpoch(epoch=epoch).encode(), version),
    ]
    try:
        _, stat = await retry_until_connected(zk, lambda: zk.multi(ops))
    except MultiFailed:
        return await _won_unheard(zk, epoch, mine)
    assert isinstance(stat, Stat)
    return Elected(epoch, stat.version)


async def _won_unheard(zk: ZkSession, epoch: int, mine: Controller) -> Elected | None:
    """Whether the multi that failed had been carried out the first time, its answer lost."""
    try:
        data, stat = await retry_until_connected(zk, lambda: zk.get(Controller.path()))
    except NoNode:
        return None
    stored_epoch, version = await _epoch(zk)
    is_mine = stat.ephemeral_owner == zk.session_id and data == mine.encode()
    return Elected(epoch, version) if is_mine and stored_epoch == epoch else None


async def _epoch(zk: ZkSession) -> tuple[int, int]:
    """The epoch of the last controller and its node's version; the node is created if missing."""
    path, before_first = ControllerEpoch.path(), ControllerEpoch(FIRST_EPOCH - 1).encode()
    while True:
        with suppress(NoNode):
            data, stat = await retry_until_connected(zk, lambda: zk.get(path))
            return _understood(data).epoch, stat.version
        with suppress(NodeExists):
            await retry_until_connected(zk, lambda: zk.create(path, before_first))


def _understood(data: bytes | None) -> ControllerEpoch:
    """Raises ZnodeError, and says what is to be done: to guess a number could be to use one
    again under which another controller has written."""
    try:
        return ControllerEpoch.decode(data)
    except ZnodeError as error:
        remedy = "no controller is elected until it is as large as every controller_epoch under"
        raise ZnodeError(error.path, f"{error.reason}; {remedy} /brokers/topics") from None


async def _give_up(zk: ZkSession) -> None:
    """Delete our own /controller: nobody reigns by it, and while it is there nobody will."""
    with suppress(NoNode):
        await retry_until_connected(zk, lambda: zk.delete(Controller.path()))
