"""Remember producers: epochs, sequence numbers, transactions and their snapshots.

Door: `producer_history` is what a log keeps of them.
"""
