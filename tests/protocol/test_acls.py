"""The words of ACLs, in both of Kafka's spellings."""

from __future__ import annotations

import pytest

from protocol.acls import OPERATIONS_OF, Operation, PatternType, Permission, ResourceType


@pytest.mark.parametrize("kind", [Operation, ResourceType, PatternType, Permission])
def test_every_word_is_read_in_both_spellings_and_in_any_case(
    kind: type[Operation | ResourceType | PatternType | Permission],
) -> None:
    for word in kind:
        if word:
            spellings = (word.word, word.name, word.name.lower(), word.word.upper())
            assert [kind.parse(text) for text in spellings] == [word] * 4
            assert kind.of(word.value) is word


def test_words_are_written_as_in_znodes() -> None:
    assert Operation.DESCRIBE_CONFIGS.word == "DescribeConfigs"
    assert ResourceType.TRANSACTIONAL_ID.word == "TransactionalId"


@pytest.mark.parametrize("text", ["", "unknown", "Paint"])
def test_what_is_no_word_is_none(text: str) -> None:
    assert Operation.parse(text) is None


@pytest.mark.parametrize("number", [-1, 0, 13, 127])
def test_a_number_that_is_unknown_is_none(number: int) -> None:
    assert Operation.of(number) is None


def test_masks_of_all_operations_are_kafka_s() -> None:
    masks = {kind: sum(1 << op for op in operations) for kind, operations in OPERATIONS_OF.items()}
    assert masks == {
        ResourceType.TOPIC: 3576,
        ResourceType.GROUP: 328,
        ResourceType.CLUSTER: 8096,
        ResourceType.TRANSACTIONAL_ID: 272,
        ResourceType.DELEGATION_TOKEN: 256,
    }
