"""Membership and commits kept by a coordinator."""
