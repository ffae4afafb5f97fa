"""Short programs a user would copy, and the demonstration."""
