"""Short programs to copy from, and the demonstration."""
