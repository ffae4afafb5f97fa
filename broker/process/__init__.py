"""The process of a broker: tasks, clocks, limits, signals between its parts.

Doors: `process` is handed to every wing, `signals` are what parts tell each other.
"""
