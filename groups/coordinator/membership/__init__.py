"""Keep the members of groups: who they are, when they rebalance, what each is assigned.

The protocol is Kafka's: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as brokers of 2.8.2 serve
them, with later fixes.

Doors: `group.Group` is the state of one group, `state.GroupState` the table of its states; `join`,
`sync`, `heartbeat` and `leave` decide the requests, `rebalance` what follows from them.
"""
