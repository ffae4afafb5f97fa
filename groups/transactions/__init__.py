"""Coordinate the transactions whose state is in `__transaction_state` (KIP-98, KIP-360, KIP-447).

Door: `coordinator.TransactionCoordinator`. Its rules are `decide.decide`, its state is
`shard.TransactionShard`, and what a transactional id may become is the table in `state`.
"""
