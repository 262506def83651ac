"""The dashboards of deploy/grafana ask for what there is, in panels that do not lie over each other."""

import json
from itertools import combinations
from typing import Any

import pytest

from .promql import REPOSITORY, wrong_in

FOLDER = REPOSITORY / "deploy" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def test_dashboard_exists_for_each_subject() -> None:
    assert DASHBOARDS.keys() == {"agents", "health", "traffic", "upstreams", "usage"}
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_dashboard_queries_use_existing_metrics_and_labels(board: dict[str, Any]) -> None:
    """Metrics, labels and values, of the gateways that are chosen."""
    for panel in board["panels"]:
        assert panel["title"] and panel["description"] and panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert [*wrong_in(target["expr"])] == [], panel["title"]
            assert 'instance=~"$instance"' in target["expr"], panel["title"]


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_dashboard_panels_do_not_overlap(board: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for one, other in combinations([panel["gridPos"] for panel in board["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert one["x"] + one["w"] <= 24
