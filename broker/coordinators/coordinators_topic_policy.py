"""Warn if the topic of a coordinator is not compacted: its state would be lost, or pile up.

With cleanup.policy=delete the log deletes commits that are older than its retention, even of live
groups, and the next broker that loads it does not have them; transactional ids likewise. Anybody
who may alter a topic can cause that, and nobody would notice before a failover.
"""

from __future__ import annotations

import logging

import attrs

from core_log.config import LogConfig
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

logger = logging.getLogger(__name__)

# "compact,delete" is bad too: it deletes live offsets by age.
COMPACTED = ("compact",)

KEPT = {OFFSETS_TOPIC: "committed offsets", TRANSACTIONS_TOPIC: "transactional ids"}
"""Topic -> what it keeps."""


@attrs.define(eq=False)
class CoordinatorsTopicPolicy:
    """The last check of `topic`.

    A bad policy is logged once, and again only if it was good in between.
    """

    topic: str = OFFSETS_TOPIC
    _is_bad: bool = False

    def check(self, config: LogConfig) -> None:
        """Check the topic's present settings, and log a change for the worse or the better."""
        was_bad = self._is_bad
        self._is_bad = tuple(config.cleanup_policy) != COMPACTED

        if self._is_bad and not was_bad:
            logger.warning(
                "%s has cleanup.policy=%s: %s will be lost with old segments. "
                "Compact it: kbroker configs alter --topic %s --add cleanup.policy=compact",
                self.topic,
                ",".join(config.cleanup_policy),
                KEPT[self.topic],
                self.topic,
            )
        elif was_bad and not self._is_bad:
            logger.info("%s is compacted again", self.topic)
