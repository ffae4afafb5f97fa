"""The client libraries and the kgroup command."""
