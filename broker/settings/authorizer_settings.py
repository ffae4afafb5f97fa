"""Check the settings that say who may do what."""

from __future__ import annotations

from broker.authorization.acl_checks import parse_super_users

AUTHORIZERS = (
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's names of what is ours here: ACLs in ZooKeeper."""


def check_authorizer(name: str) -> str | None:
    """Refuse a class that we are not; the names of Kafka's own are ours."""
    if not name or name in AUTHORIZERS:
        return None
    return f"is a Java class that cannot be loaded here; there are {' and '.join(AUTHORIZERS)}"


def check_super_users(text: str) -> str | None:
    """Refuse what is no list of principals."""
    try:
        parse_super_users(text)
    except ValueError as error:
        return str(error)
    return None
