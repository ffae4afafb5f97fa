"""`kgroup completion` and `kbroker completion`: the script that a shell has to run once."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="""\b
Examples:
  kgroup completion bash > ~/.local/share/bash-completion/completions/kgroup
  kbroker completion bash > ~/.local/share/bash-completion/completions/kbroker
  kgroup completion zsh > ~/.zfunc/_kgroup
  kgroup completion fish > ~/.config/fish/completions/kgroup.fish""",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options, groups and topics.

    Names of groups and topics are asked of the cluster, for at most a second.
    """
    root = context.find_root()
    program = root.info_name or "kgroup"
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click knows all of SHELLS"

    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    click.echo(completion_class(root.command, {}, program, variable).source())
