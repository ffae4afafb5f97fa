"""Lists with commas on a command line, as Kafka's commands have them."""

from typing import Any

import click


def split_names(names: str | None) -> list[str]:
    """What a list names; nothing if there is none."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


class BrokerList(click.ParamType):  # type: ignore[type-arg]
    """Broker ids, as in 0,1,2."""

    name = "B,B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Raises UsageError for what is no id, and for one that is there twice."""
        if isinstance(value, tuple):
            return value
        try:
            brokers = tuple(int(each) for each in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not broker ids as in 0,1,2", param, ctx)
        if len(set(brokers)) != len(brokers):
            self.fail(f"broker list contains duplicate entries: {value}", param, ctx)
        return brokers


class Assignment(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `0:1,1:2`: for each partition its brokers, the preferred leader first."""

    name = "B:B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], ...]:
        """Raises UsageError for what is not broker ids."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(
                tuple(int(broker) for broker in replicas.split(":"))
                for replicas in str(value).split(",")
            )
        except ValueError:
            self.fail(f"{value!r} is not broker ids as in 0:1,1:2", param, ctx)
