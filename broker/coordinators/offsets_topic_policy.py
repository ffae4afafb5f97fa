"""Whether `__consumer_offsets` is still compacted: without that, commits are lost or pile up.

With cleanup.policy=delete the log forgets what was committed longer ago than its retention, live
groups or not, and a broker that loads it then begins without. Anybody who may alter a topic may
cause that, and nobody would notice before a failover.
"""

from __future__ import annotations

import logging

import attrs

from core_log.config import LogConfig
from offsets.topic import OFFSETS_TOPIC

logger = logging.getLogger(__name__)

COMPACTED = ("compact",)


@attrs.define(eq=False)
class OffsetsTopicPolicy:
    """Says so once, when it is loaded or changed, and again only if it was good in between."""

    _is_bad: bool = False

    def check(self, config: LogConfig) -> None:
        """Hear of the topic's settings as they are now."""
        was_bad, self._is_bad = self._is_bad, tuple(config.cleanup_policy) != COMPACTED
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
