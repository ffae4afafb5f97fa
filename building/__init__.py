"""Build the wheel and the sdist; nothing of this is installed. `backend` is the door."""
