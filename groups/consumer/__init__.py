"""Be a member of a group that a coordinator keeps: the consumer's side of JoinGroup and SyncGroup.

Doors: `decide.decide` has the rules, `state.Consumer` is what they read and replace; `events` come
in, `effects` go out. `dealing.deal` shares out a member's partitions among its streams.
"""
