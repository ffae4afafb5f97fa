"""Open logs after a stop or a crash, and find out what is damaged.

Doors: `loading` opens a log directory, `recovery_pool` many of them in processes.
"""
