"""Features are found by their folders, in an order that holds for all of their parts."""

from pathlib import Path

import pytest

from gateway.features import registry
from gateway.features.registry import FOLDER, list_features, load_part, load_parts


def test_features_with_an_order_come_first() -> None:
    assert list_features("observer")[: len(registry.ORDER)] == registry.ORDER
    assert list_features("command")[:2] == ("usage", "limits")


def test_every_feature_in_the_order_exists() -> None:
    assert all((FOLDER / name / "__init__.py").exists() for name in registry.ORDER)


def test_feature_without_a_file_of_the_role_is_left_out() -> None:
    assert "tracing" not in list_features("command")
    assert list_features("nothing_has_this") == ()


def test_added_folder_follows_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no line of the registry; a folder without `__init__` is none."""
    for name in ("zebra", "usage", "apple"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "observer.py").touch()
    (tmp_path / "templates").mkdir()
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    assert list_features.__wrapped__("observer") == ("usage", "apple", "zebra")


def test_parts_are_the_modules_of_their_role() -> None:
    features, parts = list_features("section"), [*load_parts("section")]
    assert [part.__name__ for part in parts] == [f"gateway.features.{name}.section" for name in features]
    assert load_part("tracing", "section") is parts[features.index("tracing")]
