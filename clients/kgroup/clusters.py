"""`kgroup clusters`: list the named clusters of the user's config.toml."""

import click

from clients.command_line.named_clusters import read_named_clusters
from clients.command_line.output import Column, Listing, output_option, show
from clients.command_line.printing import say

COLUMNS = (
    Column("CLUSTER", 15),
    Column("DEFAULT", text=lambda is_default: "*" if is_default else ""),
    Column("BOOTSTRAP-SERVER", 20),
    Column("ZOOKEEPER", 15),
    Column("COMMAND-CONFIG"),
    Column("TIMEOUT", key="timeout_ms"),
)


@click.command(
    "clusters",
    epilog="""\b
Examples:
  kgroup clusters
  kgroup clusters -o json""",
)
@output_option
def command(output: str) -> None:
    """List the clusters that -c/--cluster and KGROUP_CLUSTER can name; * is the default.

    They are tables [clusters.NAME] in ~/.config/kgroup/config.toml (or below $XDG_CONFIG_HOME)
    with the keys bootstrap-server, zookeeper, command-config and timeout.
    """
    known = read_named_clusters()
    if not known.clusters:
        say(f"No clusters: {known.path} has no table [clusters.NAME].", err=True)

    items = [
        {
            "cluster": name,
            "default": name == known.default,
            "bootstrap_server": cluster.bootstrap_server,
            "zookeeper": cluster.zookeeper,
            "command_config": str(cluster.command_config) if cluster.command_config else None,
            "timeout_ms": cluster.timeout_ms,
        }
        for name, cluster in known.clusters.items()
    ]
    show(Listing("clusters", COLUMNS, items), output)
