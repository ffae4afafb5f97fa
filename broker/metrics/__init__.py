"""A broker's figures for Prometheus (`kgroup.metrics.port`).

Doors: `assembly`; `families`, the table of all names; `measured_dispatch`, where requests count.
"""
