"""Kafka's error codes: the table of kafka-clients 2.8.2, as its Errors prints itself."""

from __future__ import annotations

import csv
from pathlib import Path

from protocol.errors import ErrorCode

TABLE = Path(__file__).parent / "golden" / "errors_2.8.2.tsv"
"""Made of `Errors.values()` by jshell: code, name, retriable (RetriableException), message."""

RETRIABLE_SINCE = {"CONCURRENT_TRANSACTIONS": "3.0"}
LATER = {"TRANSACTIONAL_ID_NOT_FOUND", "FETCH_SESSION_TOPIC_ID_ERROR", "INELIGIBLE_REPLICA"}


def kafkas() -> dict[str, tuple[int, bool, str]]:
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {
            row["name"]: (
                int(row["code"]),
                row["retriable"] == "true" or row["name"] in RETRIABLE_SINCE,
                row["message"],
            )
            for row in rows
        }


def test_every_error_has_the_code_and_the_words_of_kafka() -> None:
    ours = {e.name: (int(e), e.retriable, e.meaning) for e in ErrorCode if e.name not in LATER}
    assert ours == kafkas()


def test_a_code_newer_than_the_table_is_an_unknown_error() -> None:
    assert ErrorCode.of(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR
