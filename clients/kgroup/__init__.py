"""The kgroup command: one file per sub-command."""
