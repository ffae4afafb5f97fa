"""A cluster in virtual time: brokers, faults and your clients in one process, all from a seed.

    from kgroup.testing.simulation import Cluster, Faults, simulate

    async def scene(cluster: Cluster, faults: Faults) -> None: ...

    simulate(scene, seed=7, topics={"orders": 3})

`simulate` is the door; `Cluster` and `Faults` are what a scene is given, `until` waits in virtual
time, and `Violation` is raised with the story. `docs/testing.md` has an example. Below: `world` and
`sim_loop` are the clock and the processes, `network` and `transport` the connections, `zookeeper`
the ensemble, `node` the machine of a broker.
"""

from kgroup.testing.simulation.cluster import CLIENT, Client, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.simulation.world import Process
from kgroup.testing.story import Violation
from kgroup.testing.waiting import until

__all__ = ["CLIENT", "Client", "Cluster", "Faults", "Process", "Violation", "simulate", "until"]
