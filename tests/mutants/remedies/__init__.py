"""What is taken away, a module for each area. See `tests.mutants.remedy`."""
