"""Follow groups over time, and judge them.

Doors: `recorder`, which keeps what `group_watch` and `zookeeper_watch` see; `health`, the verdicts.
"""
