"""Blocking twins of the clients, under the same names."""

from clients.blocking import Admin, ConsumerConnector, Producer, SimpleConsumer

__all__ = ["Admin", "ConsumerConnector", "Producer", "SimpleConsumer"]
