"""The suites of other projects."""

from tests.interop.suites.franz_go import BOLD_FRANZ_GO, FRANZ_GO
from tests.interop.suites.kafka_python import KAFKA_PYTHON
from tests.interop.suites.librdkafka import LIBRDKAFKA, LIBRDKAFKA_WITHOUT_AUTO_CREATION
from tests.interop.suites.rust_rdkafka import RUST_RDKAFKA
from tests.interop.suites.sarama import SARAMA

SUITES = (
    KAFKA_PYTHON,
    SARAMA,
    FRANZ_GO,
    BOLD_FRANZ_GO,
    LIBRDKAFKA,
    LIBRDKAFKA_WITHOUT_AUTO_CREATION,
    RUST_RDKAFKA,
)
