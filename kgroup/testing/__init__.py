"""Clusters for your tests: a real one (`running_cluster`), and one in virtual time (`simulation`).

pytest loads this package wherever kgroup is installed, so it imports nothing of ours before a
cluster is wanted.
"""

from kgroup.testing.running_cluster import KgroupCluster, kgroup_cluster, run_cluster

__all__ = ["KgroupCluster", "kgroup_cluster", "run_cluster"]
