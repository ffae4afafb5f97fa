"""Quotas of users and clients (KIP-13, KIP-55, KIP-124, KIP-219, KIP-599).

Doors: `client_quotas`, which counts and decides; `charging`, where a request pays; `stored_quotas`,
which follows ZooKeeper.
"""
