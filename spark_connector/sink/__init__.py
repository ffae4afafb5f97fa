"""The sink: `format("kgroup")` as the end of a query."""
