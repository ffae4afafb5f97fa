"""Move groups' offsets, with a journal that takes it back.

Doors: `reset`; `journalled_offsets`, which writes; `journal`, which remembers.
"""
