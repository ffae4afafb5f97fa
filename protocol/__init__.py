"""The wire with no I/O: primitives, messages, record formats, errors, settings."""
