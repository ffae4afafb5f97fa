"""`kgroup perf`: measure a cluster with Kafka's options, and print Kafka's lines."""

import click

from clients.command_line.kafka_spelling import ActionGroup
from clients.kgroup.perf import commit, consume, produce


@click.group(
    "perf",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kgroup perf produce --topic flights --num-records 1000000 --record-size 100 --throughput -1
  kgroup perf consume --topic flights --messages 1000000
  kgroup perf commit --topic flights --groups 100 --num-commits 10000""",
)
def command() -> None:
    """Measure how fast a cluster takes records, gives them back, and commits offsets."""


for sub_command in (produce.command, consume.command, commit.command):
    command.add_command(sub_command)
