"""Join coordinators (`groups.runtime`) to the partitions that hold their state.

Doors: `replicated_log` appends and reads, `topic_leadership` loads and unloads by leadership.
"""
