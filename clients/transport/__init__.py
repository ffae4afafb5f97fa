"""Speak to brokers: connections, their pool, and the versions that a broker serves.

Doors: `connections` for a cluster, `connection` for one broker. Brokers use them too.
"""
