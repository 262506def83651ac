"""The phases of a worker reach each feature, in their order."""

from types import SimpleNamespace

import pytest

from gateway.config import ConfigError, Problem, Settings
from gateway.features.registry import ORDER, list_features
from gateway.server import feature
from gateway.server.feature import Feature, FeatureNeeds, FeatureService, WorkerFeatures, load_features
from tests.features.worker import features

HEARD: list[str] = []


class FirstService(FeatureService):
    """A feature that notes what it hears."""

    def __init__(self, needs: FeatureNeeds, others: WorkerFeatures) -> None:
        super().__init__(needs, others)
        HEARD.append(f"{type(self).__name__} built")

    def apply_settings(self, settings: Settings) -> None:
        HEARD.append(f"{type(self).__name__} follows")

    async def refresh(self) -> None:
        HEARD.append(f"{type(self).__name__} refreshed")

    async def close(self) -> None:
        HEARD.append(f"{type(self).__name__} closed")


class SecondService(FirstService):
    """A feature that finds the one before it."""

    def __init__(self, needs: FeatureNeeds, others: WorkerFeatures) -> None:
        super().__init__(needs, others)
        assert type(others.find(FirstService)) is FirstService


async def test_services_hear_of_phases_in_order_and_close_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [SimpleNamespace(FEATURE=Feature(service=kind)) for kind in (FirstService, SecondService)]
    monkeypatch.setattr(feature, "load_parts", lambda role: parts)
    HEARD.clear()
    async with features({}) as found:
        await found.refresh()
        await found.prepare()
        found.catch_up()
        assert (found.tracer, found.list_tasks(), list(found.collect_counts())) == (None, [], [])
        assert (found.build_observers(Settings()), found.build_hooks(Settings())) == ([], [])
        assert list(found.collect_families()) == []
    assert [
        *("FirstService built", "SecondService built", "FirstService follows", "SecondService follows"),
        *("FirstService refreshed", "SecondService refreshed", "SecondService closed", "FirstService closed"),
    ] == HEARD


def test_each_feature_with_a_service_has_a_record() -> None:
    assert list_features("service")[: len(ORDER)] == ORDER
    assert len(load_features()) == len(list_features("service"))


async def test_an_added_feature_stops_a_start_by_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(needs: FeatureNeeds, others: WorkerFeatures) -> FeatureService:
        raise ConfigError((Problem("configuration", "mine", "cannot start"),))

    monkeypatch.setattr(feature, "load_parts", lambda role: [SimpleNamespace(FEATURE=Feature(service=refuse))])
    with pytest.raises(ConfigError, match="mine: cannot start"):
        async with features({}):
            raise AssertionError("it has started")
