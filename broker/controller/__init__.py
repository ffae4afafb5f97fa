"""Brokers, topics and leaders: decided here, done over the wire."""
