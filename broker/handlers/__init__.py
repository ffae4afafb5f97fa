"""Serve requests: one module for each API, named as in protocol/messages."""
