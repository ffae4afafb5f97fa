"""The program `kgroup`. All that takes time to import is imported by `run`."""

from clients.command_line.program import run


def main() -> None:
    """Run the command."""
    run("clients.kgroup.command")
