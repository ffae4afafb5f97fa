"""Whatever else its session is used for, a fetch brings no records that ACLs forbid."""

import pytest

from tests.broker.fetch_story import FetchStory


@pytest.mark.fault("security-1")
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_reader_gets_no_records_of_a_topic_that_acls_forbid(first: int) -> None:
    read = 0
    for seed in range(first, first + 20):
        story = FetchStory(seed)
        story.live()
        read += story.story.counts["records read"]

    assert read, "stories in which nothing was read say nothing"
