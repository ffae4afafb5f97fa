"""Start, keep and stop a broker: tasks, periodic work, limits of the process, shutdown.

Doors: `housekeeping` does the periodic work, `controlled_shutdown` moves leaders away first.
"""
