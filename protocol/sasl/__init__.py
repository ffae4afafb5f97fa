"""Log in by SASL, both sides, without I/O: PLAIN, SCRAM and OAUTHBEARER.

Doors: `exchange` for what all mechanisms share, a module for each mechanism, `jaas` for the text
that carries names and passwords in Kafka's settings.
"""
