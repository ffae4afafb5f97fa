"""Benchmarks compare our speed with a named peer's: one module a question, one table for all."""
