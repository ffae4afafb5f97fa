"""Warn if `__consumer_offsets` is not compacted: commits would be lost, or pile up.

With cleanup.policy=delete the log deletes commits that are older than its retention, even of live
groups, and the next broker that loads it does not have them. Anybody who may alter a topic can
cause that, and nobody would notice before a failover.
"""

from __future__ import annotations

import logging

import attrs

from core_log.config import LogConfig
from protocol.internal_topics import OFFSETS_TOPIC

logger = logging.getLogger(__name__)

# "compact,delete" is bad too: it deletes live offsets by age.
COMPACTED = ("compact",)


@attrs.define(eq=False)
class OffsetsTopicPolicy:
    """The last check. A bad policy is logged once, and again only if it was good in between."""

    _is_bad: bool = False

    def check(self, config: LogConfig) -> None:
        """Check the topic's present settings, and log a change for the worse or the better."""
        was_bad = self._is_bad
        self._is_bad = tuple(config.cleanup_policy) != COMPACTED

        if self._is_bad and not was_bad:
            logger.warning(
                "%s has cleanup.policy=%s: committed offsets will be lost with old segments. "
                "Compact it: kbroker configs alter --topic %s --add cleanup.policy=compact",
                OFFSETS_TOPIC,
                ",".join(config.cleanup_policy),
                OFFSETS_TOPIC,
            )
        elif was_bad and not self._is_bad:
            logger.info("%s is compacted again", OFFSETS_TOPIC)
