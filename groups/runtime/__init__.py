"""Run the coordinators whose state is an internal topic: `__consumer_offsets` for groups.

A partition of the topic is a *shard*. Its leader loads it from the log, decides requests and timer
events, writes records, and replays them when they are replicated. This package knows logs,
leadership and waiting; it knows no request and no record format.

Doors: `runtime.CoordinatorRuntime` is the shell, `shard.Shard` what a coordinator has to provide,
`effects` what a shard may ask for, `partition_log.PartitionLog` what the broker has to provide.
"""
