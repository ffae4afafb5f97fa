"""Run a command as a program, which Ctrl-C ends without a traceback from its first import on."""

import signal
from importlib import import_module


def run(module: str) -> None:
    """Import a command's module, and run its `main`."""
    # Python's own handler would raise in the midst of an import; a job in the background has none.
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = import_module(module).main
    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    main()
