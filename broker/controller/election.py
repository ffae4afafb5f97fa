"""Become the controller: one multi creates /controller and raises /controller_epoch.

Because both happen or neither, no two controllers ever have the same epoch. So a write that checks
the version of /controller_epoch is a write of the controller of that epoch (KAFKA-6082).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from broker.controller.events import Elected, ElectionLost
from broker.process.zk_retry import retry_until_connected
from zk.api import Create, MultiFailed, NodeExists, NoNode, Op, SetData, Stat, Watch, ZkSession
from zk.znodes import Controller, ControllerEpoch, ZnodeError

logger = logging.getLogger(__name__)

# As in Kafka: a new /controller_epoch has 0, which is no controller's.
FIRST_EPOCH = 1


async def elect(
    zk: ZkSession,
    broker_id: int,
    now_ms: Callable[[], int],
    watch: Watch,
    *,
    is_controller: bool,
    beyond: int = 0,
) -> Elected | ElectionLost | None:
    """Find the controller, or become it if there is none. `watch` is left on /controller.

    The result is None when this broker is the controller and knows it (`is_controller`). The epoch
    is larger than `beyond`. Raises SessionExpired, and ZnodeError when /controller_epoch cannot be
    read.
    """
    while True:
        controller = await _find_controller(zk, watch)
        if controller is None:
            elected = await _stand(zk, broker_id, now_ms(), beyond)
            if elected is not None:
                return elected
            continue  # another broker was faster

        controller_id, owner = controller
        if owner != zk.session_id:
            # Our id in another session is this broker's last run, whose session is about to end.
            return ElectionLost(-1 if controller_id == broker_id else controller_id)

        # The node is this session's.
        if is_controller:
            return None

        # This broker has resigned since it created the node: stand once more.
        await _delete_own(zk)


async def _find_controller(zk: ZkSession, watch: Watch) -> tuple[int, int] | None:
    """Return the controller's id (-1 if it cannot be parsed) and session; None for no node."""
    while True:
        try:
            data, stat = await retry_until_connected(
                zk, lambda: zk.get(Controller.path(), watch=watch)
            )
        except NoNode:
            # Watch for the node's creation; look again if it was created meanwhile.
            created = await retry_until_connected(
                zk, lambda: zk.exists(Controller.path(), watch=watch)
            )
            if created is None:
                return None
            continue

        try:
            return Controller.decode(data).broker_id, stat.ephemeral_owner
        except ZnodeError as error:
            # An ephemeral node goes with its session; a persistent one stays until it is deleted.
            if not stat.ephemeral_owner:
                logger.error("%s; no controller is elected until the node is deleted", error)
            return -1, stat.ephemeral_owner


async def _stand(zk: ZkSession, broker_id: int, now_ms: int, beyond: int) -> Elected | None:
    """Try to be elected; return None if another broker was."""
    last_epoch, version = await _read_epoch(zk)
    epoch = max(last_epoch, beyond) + 1
    own = Controller(broker_id=broker_id, timestamp_ms=now_ms)
    ops: list[Op] = [
        Create(Controller.path(), own.encode(), ephemeral=True),
        SetData(ControllerEpoch.path(), ControllerEpoch(epoch=epoch).encode(), version),
    ]
    try:
        _, stat = await retry_until_connected(zk, lambda: zk.multi(ops))
    except MultiFailed:
        # Another broker was faster, or an earlier try succeeded and its reply was lost.
        return await _elected_by_lost_reply(zk, epoch, own)
    assert isinstance(stat, Stat)
    return Elected(epoch, stat.version)


async def _elected_by_lost_reply(zk: ZkSession, epoch: int, own: Controller) -> Elected | None:
    """Return Elected if the failed multi had been applied by an earlier try with a lost reply."""
    try:
        data, stat = await retry_until_connected(zk, lambda: zk.get(Controller.path()))
    except NoNode:
        return None
    stored_epoch, version = await _read_epoch(zk)

    # The timestamp in the data tells this try from the last one of this session.
    is_own = stat.ephemeral_owner == zk.session_id and data == own.encode()
    return Elected(epoch, version) if is_own and stored_epoch == epoch else None


async def _read_epoch(zk: ZkSession) -> tuple[int, int]:
    """Return the last controller's epoch and its node's version; create a missing node."""
    path = ControllerEpoch.path()
    before_first = ControllerEpoch(FIRST_EPOCH - 1).encode()

    # Brokers of a new cluster may create the node at the same time: then read again.
    while True:
        with suppress(NoNode):
            data, stat = await retry_until_connected(zk, lambda: zk.get(path))
            return _parse_epoch(data).epoch, stat.version
        with suppress(NodeExists):
            await retry_until_connected(zk, lambda: zk.create(path, before_first))


def _parse_epoch(data: bytes | None) -> ControllerEpoch:
    """Parse the node. Raises ZnodeError, whose text says how to repair it.

    A guessed epoch could be one under which another controller has written.
    """
    try:
        return ControllerEpoch.decode(data)
    except ZnodeError as error:
        remedy = "no controller is elected until it is as large as every controller_epoch under"
        raise ZnodeError(error.path, f"{error.reason}; {remedy} /brokers/topics") from None


async def _delete_own(zk: ZkSession) -> None:
    """Delete our own /controller: nobody acts by it, and it keeps others from being elected."""
    with suppress(NoNode):
        await retry_until_connected(zk, lambda: zk.delete(Controller.path()))
