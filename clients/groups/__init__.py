"""Read groups of both kinds, and say where each stands.

Doors: `group_reader`, whose facts `group_view` turns into rows; `lag`, the one definition of it.
"""
