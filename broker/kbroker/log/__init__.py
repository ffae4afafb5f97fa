"""`kbroker log` reads log directories, verifies them and repairs them."""
