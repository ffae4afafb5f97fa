"""Committed offsets: the offsets topic's records and state, and the stores consumers use."""
