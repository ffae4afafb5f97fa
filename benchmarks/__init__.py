"""What the speed is, beside a named peer: one module a question, all printed as one table."""
