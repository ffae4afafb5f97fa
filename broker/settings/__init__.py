"""Read and change settings: of this broker, of all brokers and of topics.

Doors: `config` has the settings of a broker, `topic_configs` those of topics, `config_alteration`
changes both.
"""
