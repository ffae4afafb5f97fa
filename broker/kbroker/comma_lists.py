"""Kafka's commands take lists with commas: names, broker ids, replica assignments."""

from typing import Any

import click


def split_names(names: str | None) -> list[str]:
    """Split a list of names at its commas; None and empty names give nothing."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


class BrokerList(click.ParamType):  # type: ignore[type-arg]
    """A list of broker ids, as in 0,1,2."""

    name = "B,B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Raises UsageError for text that is no id, and for an id that appears twice."""
        # click may pass a value that it has converted before.
        if isinstance(value, tuple):
            return value

        try:
            brokers = tuple(int(broker_id) for broker_id in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not broker ids as in 0,1,2", param, ctx)

        if len(set(brokers)) != len(brokers):
            self.fail(f"broker list contains duplicate entries: {value}", param, ctx)
        return brokers


class BrokerLists(click.ParamType):  # type: ignore[type-arg]
    """Kafka's `0:1,1:2`: each partition's brokers, the preferred leader first."""

    name = "B:B,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], ...]:
        """Raises UsageError for text that is not broker ids."""
        # click may pass a value that it has converted before.
        if isinstance(value, tuple):
            return value

        try:
            return tuple(
                tuple(int(broker) for broker in replicas.split(":"))
                for replicas in str(value).split(",")
            )
        except ValueError:
            self.fail(f"{value!r} is not broker ids as in 0:1,1:2", param, ctx)
