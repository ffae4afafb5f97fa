"""`kbroker zookeeper`: run the embedded ZooKeeper, or secure and open the znodes of brokers."""

import asyncio
from pathlib import Path

import click

from broker.kbroker.lifeline import run_until_stopped, stop_event
from clients.command_line.output import Target, read_properties, target_options
from clients.command_line.printing import say
from clients.command_line.progress import showing_progress
from clients.command_line.sessions import open_zookeeper
from protocol.zookeeper_security import JAAS
from zk.acl_change import change_acls
from zk.embedded import EmbeddedZooKeeper


@click.group(
    "zookeeper",
    invoke_without_command=True,
    epilog="""\b
Examples:
  kbroker zookeeper --port 2181 --data /tmp/zookeeper --users users.properties
  kbroker zookeeper secure --zookeeper localhost:2181 --command-config admin.properties""",
)
@click.pass_context
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2181,
    show_default=True,
    help="Client port; 0 takes any free one.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory; an existing one is continued.",
)
@click.option(
    "--users",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file NAME=PASSWORD with those who may log in by SASL DIGEST-MD5.",
)
def command(context: click.Context, port: int, data: Path | None, users: Path | None) -> None:
    """Run a real ZooKeeper server on this machine.

    It prints `ready zookeeper=H:P` when it serves. SIGINT and SIGTERM stop it.
    """
    if context.invoked_subcommand is None:
        if data is None:
            raise click.UsageError("Missing option '--data'.")
        asyncio.run(serve(EmbeddedZooKeeper(data, port, users=read_properties(users))))


async def serve(zookeeper: EmbeddedZooKeeper) -> None:
    """Run the server until SIGINT or SIGTERM. Raises ZkServerError, also if it ends by itself."""
    stop = stop_event()

    try:
        if await run_until_stopped(stop, zookeeper.start()):
            # That of `kbroker dev`, whose server it is once more.
            pid_file = zookeeper.data_dir.with_suffix(".pid")
            if pid_file.exists():
                pid_file.write_text(f"{zookeeper.pid}\n")
            say(f"ready zookeeper={zookeeper.connect_string}")
            await run_until_stopped(stop, zookeeper.fail_at_its_end())
    finally:
        # A start that was cut short may have left a process.
        await zookeeper.stop()


# --- the access to a tree that exists -------------------------------------------------------------


@command.command(
    "secure",
    epilog="""\b
Example:
  kbroker zookeeper secure --zookeeper localhost:2181 --command-config admin.properties""",
)
@target_options
def secure(target: Target) -> None:
    """Let brokers alone change what they keep in ZooKeeper; others may read all but passwords.

    The login is that of the brokers: kgroup.zookeeper.sasl.jaas.config in the file of
    --command-config. All brokers must have it, and zookeeper.set.acl=true, before this.
    """
    asyncio.run(change(target, secure=True))


@command.command(
    "open",
    epilog="""\b
Example:
  kbroker zookeeper open --zookeeper localhost:2181 --command-config admin.properties""",
)
@target_options
def open_(target: Target) -> None:
    """Let everybody change what brokers keep in ZooKeeper again."""
    asyncio.run(change(target, secure=False))


async def change(target: Target, *, secure: bool) -> None:
    """Secure or open the nodes of brokers. Raises UsageError, ZkError and SettingError."""
    if target.zookeeper is None:
        raise click.UsageError("name ZooKeeper by --zookeeper")
    session = await open_zookeeper(target.zookeeper, target)
    try:
        if secure and not session.login.has_identity:
            raise click.UsageError(
                f"a login is needed, which will own the nodes: {JAAS} in a file of --command-config"
            )
        nodes = 0
        async with showing_progress(lambda: f"{nodes} nodes"):
            async for _ in change_acls(session, secure=secure):
                nodes += 1
    finally:
        await session.close()
    say(f"{nodes} nodes {'belong to the brokers' if secure else 'are open'}.")
