"""Give the commands of kgroup and kbroker what they share.

Doors: `command_group`, `output`, `sessions`.
"""
