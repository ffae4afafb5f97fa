"""`make demo`: real flights through a real group that loses a member, then through Spark."""
