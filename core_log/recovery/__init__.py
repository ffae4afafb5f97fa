"""Open logs after a stop or a crash, and find out what is damaged.

Doors: `loading` opens a log directory, `damage` says what was found.
"""
