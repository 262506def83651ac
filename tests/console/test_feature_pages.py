"""Features bring pages and entries of the navigation."""

from gateway.console.feature_pages import collect_entries, collect_pages
from gateway.console.request import ENTRIES


def test_entries_of_features_stand_behind_those_that_they_name() -> None:
    paths = [entry.path for entry in collect_entries()]
    named = ["/keys", "/usage", "/limits", "/status"]
    assert [path for path in paths if path in named] == named
    assert [path for path in paths if path in {entry.path for entry in ENTRIES}] == [entry.path for entry in ENTRIES]


def test_every_entry_of_a_feature_has_its_page() -> None:
    pages = {page.path for page in collect_pages(lambda: 0.0) if page.method == "GET"}
    assert {entry.path for entry in collect_entries()} - {entry.path for entry in ENTRIES} <= pages
