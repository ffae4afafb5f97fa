"""Share the partitions of topics among the members of groups, and keep their offsets.

Two independent parts: `zookeeper` has the groups that share partitions through ZooKeeper, as
members see them. `coordinator` has the groups whose offsets a broker keeps, and `runtime` runs it;
`assignors` has how the leader among their members shares out partitions.
"""
