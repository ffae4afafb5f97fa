"""Keep the groups whose offsets are in `__consumer_offsets`.

Door: `coordinator.GroupCoordinator`. Its rules are `decide.decide`, its state is
`shard.GroupShard`.
"""
