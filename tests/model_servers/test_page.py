"""The page of model servers says what their records say."""

from .page import DOCUMENT, render
from .rooms import ROOMS


def test_page_of_model_servers_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert DOCUMENT.read_text("utf-8") == render()


def test_each_server_record_names_its_version_and_sources() -> None:
    """What it refuses is learnt."""
    for room in ROOMS:
        assert room.version and room.sources and f"### {room.title}\n" in render(), room.name
        assert bool(room.refuses) == bool(room.learns), room.name
    assert len({room.name for room in ROOMS}) == len({room.title for room in ROOMS}) == len(ROOMS)
