"""Whether all is well again: ISRs are full, and the brokers tell alike what ZooKeeper has."""

from collections.abc import Sequence

from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition
from tests.chaos.cluster import BROKERS
from tests.chaos.observer import Observer
from zk.session import KazooSession
from zk.znodes import PartitionState


async def out_of_sync(
    session: KazooSession, observer: Observer, loaded: Sequence[TopicPartition]
) -> list[str]:
    """What is wrong with these partitions and those of the committed offsets."""
    views = await observer.views()
    wrong = [f"broker {each} does not answer" for each in BROKERS if each not in views]
    offsets = {at for view in views.values() for at in view if at.topic == OFFSETS_TOPIC}
    for at in (*loaded, *sorted(offsets)):
        data, _ = await session.get(PartitionState.path(*at))
        state = PartitionState.decode(data)
        if len(state.isr) < len(BROKERS) or state.leader not in BROKERS:
            wrong.append(f"{at}: leader {state.leader}, isr {state.isr}")
        for broker_id, view in views.items():
            told = view.get(at)
            if told is None:
                wrong.append(f"{at}: broker {broker_id} does not know it")
            elif (told.leader_id, told.leader_epoch) != (state.leader, state.leader_epoch):
                wrong.append(
                    f"{at}: broker {broker_id} tells of leader {told.leader_id} "
                    f"in epoch {told.leader_epoch}, it is {state.leader} in "
                    f"{state.leader_epoch}"
                )
            elif set(told.isr_nodes) != set(state.isr):
                wrong.append(f"{at}: broker {broker_id} tells of isr {told.isr_nodes}")
    return wrong
