"""What a broker has of its process: tasks, clocks, limits, signals between its parts.

Doors: `process` is handed to every wing, `signals` are what parts tell each other.
"""
