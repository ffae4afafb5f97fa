"""Decide who may do what, by ACLs in ZooKeeper: Kafka's SimpleAclAuthorizer.

Doors: `acl_authorizer` for brokers, `acl_store` for what writes ACLs without one.
"""
