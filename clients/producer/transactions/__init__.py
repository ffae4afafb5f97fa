"""The transactions of a producer (KIP-98): its side of the coordinator's protocol.

Doors: `decide` (the decisions, and the one table of states in `state`), `reactions` (the meaning of
each error), `transactions` (the shell, which the producer and its sender call).
"""
