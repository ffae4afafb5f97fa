"""Run the coordinators whose state is an internal topic: `__consumer_offsets` for groups.

A partition of the topic is a *shard*. Its leader loads it from the log, decides what requests and
timers make of it, writes records, and replays them once they are replicated. This package knows
logs, leadership and waiting; it knows no request and no record format.

Doors: `runtime.CoordinatorRuntime` is the shell, `shard.Shard` what a coordinator has to provide,
`effects` what a shard may ask for, `partition_log.PartitionLog` what the broker has to provide.
"""
