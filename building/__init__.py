"""How the wheel and the sdist are built; nothing of this is installed. `backend` is the door."""
