"""The alerts of deploy/prometheus ask for what there is, and fire when they should."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .promql import REPOSITORY, wrong_in

RULES = REPOSITORY / "deploy" / "prometheus" / "alerts.yml"
CASES = Path(__file__).parent / "alerts_test.yml"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_alert_rules_use_existing_metrics_and_labels() -> None:
    """Metrics, labels and values; labels of its own text are those that its expression keeps."""
    for rule in alerts():
        assert [*wrong_in(rule["expr"])] == [], rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        kept = re.findall(r"by \(([^)]*)\)", rule["expr"])
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert not kept or label in kept[0], (rule["alert"], label)


def test_alert_names_are_unique() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 20


@pytest.mark.prometheus
def test_alert_rules_pass_promtool_checks_and_tests(tmp_path: Path) -> None:
    """By its own tool (Debian: apt-get install prometheus)."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "no promtool here: apt-get install prometheus"
    cases = tmp_path / "alerts_test.yml"
    cases.write_text(CASES.read_text().replace("RULES", str(RULES)))
    for what in (["check", "rules", str(RULES)], ["test", "rules", str(cases)]):
        done = subprocess.run([promtool, *what], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
