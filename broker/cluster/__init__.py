"""Know the cluster and take part in it: metadata, topics, registration, producer ids.

Doors: `metadata_cache` answers what the cluster looks like, `topic_creation` makes topics,
`registration` makes this broker known.
"""
