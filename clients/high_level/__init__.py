"""The high-level consumer: groups, streams, commits."""
