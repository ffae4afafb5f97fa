"""The program `kbroker`. All that takes time to import is imported by `run`."""

from clients.command_line.program import run
from protocol.child_python import keep_current_folder_out


def main() -> None:
    """Run the command."""
    keep_current_folder_out()
    run("broker.kbroker.command")
