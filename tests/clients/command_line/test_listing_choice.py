"""`--columns` and `--sort`."""

import click
import pytest

from clients.command_line.listing_choice import choose_columns, find_column, sort_listing
from clients.command_line.output import Listing
from clients.groups.group_view import OFFSET_COLUMNS


@pytest.mark.parametrize("name", ["TIME-LAG", "time_lag_ms", "time-lag-ms", " Time_Lag "])
def test_a_column_is_found_by_its_title_or_its_key(name: str) -> None:
    assert find_column(OFFSET_COLUMNS, name).key == "time_lag_ms"


def test_an_unknown_column_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(click.UsageError, match=r"no column 'tpoic': did you mean TOPIC\?"):
        find_column(OFFSET_COLUMNS, "tpoic")


def test_columns_come_in_the_order_of_their_names_and_are_shown_in_a_plain_table() -> None:
    chosen = choose_columns(OFFSET_COLUMNS, "lag,age,group")
    assert [column.title for column in chosen] == ["LAG", "AGE", "GROUP"]
    assert not any(column.wide for column in chosen)


def test_rows_are_sorted_by_a_column_and_those_without_a_value_come_last() -> None:
    items = [{"lag": 1}, {"lag": None}, {"lag": 30}, {"lag": 4}]
    listing = Listing("group", OFFSET_COLUMNS, items)
    up = sort_listing(listing, OFFSET_COLUMNS, "lag")
    down = sort_listing(listing, OFFSET_COLUMNS, "-lag")
    assert [item["lag"] for item in up.items] == [1, 4, 30, None]
    assert [item["lag"] for item in down.items] == [30, 4, 1, None]
