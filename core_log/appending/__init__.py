"""Check what is to be appended, and stamp it with offsets, epochs and times.

Doors: `validator` checks batches, `message_validator` message sets of older formats.
"""
