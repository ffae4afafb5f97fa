"""Requests with many items are split into batches."""

import pytest

from zk.api import split_into_batches


@pytest.mark.parametrize(
    ("sizes", "split"),
    [
        ([], []),
        ([1, 1, 1], [[1, 1, 1]]),
        ([1, 1, 1, 1], [[1, 1, 1], [1]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([4, 7], [[4], [7]]),
        ([1, 50, 1], [[1], [50], [1]]),
        ([50, 50], [[50], [50]]),
    ],
)
def test_a_batch_holds_three_items_and_ten_bytes_or_one_item(
    sizes: list[int], split: list[list[int]]
) -> None:
    assert [list(batch) for batch in split_into_batches(sizes, lambda size: size, 3, 10)] == split
