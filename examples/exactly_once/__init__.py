"""Flights in, totals out, each flight counted once, whatever is killed."""
