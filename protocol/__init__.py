"""Kafka's wire protocol without I/O: messages, record formats, errors, settings."""
