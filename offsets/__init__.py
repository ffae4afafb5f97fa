"""Committed offsets: the offsets topic's records and state, and the stores a consumer keeps its position in."""
