"""Start, keep and stop a broker: its steps, its periodic work, its controlled shutdown.

Doors: `housekeeping` does the periodic work, `controlled_shutdown` moves leaders away first.
"""
