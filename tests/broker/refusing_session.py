"""A session with ZooKeeper some of whose calls fail, and which counts them all."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import attrs

from zk.api import ZkError, ZkSession


@attrs.define(eq=False)
class RefusingSession:
    """`errors` has by method what its next calls raise, one after the other; `calls` how often each
    was called."""

    zk: ZkSession
    errors: dict[str, list[ZkError]] = attrs.field(factory=dict)
    calls: Counter[str] = attrs.field(factory=Counter)

    def refuse(self, method: str, *errors: ZkError) -> None:
        """Have the next calls of `method` fail so."""
        self.errors.setdefault(method, []).extend(errors)

    @property
    def session(self) -> ZkSession:
        """This, as who uses it takes it for."""
        return cast(ZkSession, self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.zk, name)
        if name not in ("get", "get_many", "children", "exists", "multi", "create", "delete"):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if self.errors.get(name):
                raise self.errors[name].pop(0)
            return await found(*args, **kwargs)

        return call
