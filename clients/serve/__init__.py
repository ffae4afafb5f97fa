"""`kgroup serve`: groups as metrics for Prometheus, as JSON, and as one page.

Doors: `command`; `app`, the web application; `monitor`, which keeps what both show; `writes`, the
requests that change offsets.
"""
