"""Join the coordinators of groups to the partitions that hold their state.

Doors: `offsets_log` appends and reads, `offsets_leadership` loads and unloads by leadership.
"""
