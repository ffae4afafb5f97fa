"""The suites of other projects."""

from tests.interop.suites.kafka_python import KAFKA_PYTHON

SUITES = (KAFKA_PYTHON,)
