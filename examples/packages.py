"""End an example with one sentence where a package that it needs is not installed."""

import importlib
import sys


def require(*packages: str) -> None:
    """Import packages, or end the program. Examples call this before they make anything."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            sys.exit(f"error: this example needs {package} ({error}): pip install '.[all,demo]'")
