"""The option `--topic`, which names a topic or some of its partitions."""

import click

from clients.command_line.topic_scope import TopicScope


class Scope(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `topic` or `topic:0,1,2`."""

    name = "t[:p,…]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicScope:
        """Read the scope. Raises UsageError for a partition that is not a number."""
        # click also passes values that are converted already.
        if isinstance(value, TopicScope):
            return value

        topic, colon, numbers = str(value).partition(":")
        if not colon:
            return TopicScope(topic)
        if not all(number.strip().isdecimal() for number in numbers.split(",")):
            self.fail(f"{value!r} is not topic or topic:partition,…", param, ctx)
        return TopicScope(topic, frozenset(map(int, numbers.split(","))))
