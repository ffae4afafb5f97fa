"""The kbroker command: one file per sub-command."""
