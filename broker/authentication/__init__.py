"""Find out who sends the requests of a connection, by SASL.

Doors: `logins` has the sessions of all listeners, `gate` decides on each frame, `scram_users` has
the credentials that ZooKeeper keeps, `inter_broker` logs in at other brokers.
"""
