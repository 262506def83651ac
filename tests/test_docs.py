"""The documentation says what is there: metrics, error codes, links, decisions."""

import json
import re
from pathlib import Path

import pytest
from metrics_page import busy_context
from upstream.groups import group

from gateway.cli.commands import iterate_leaf_commands
from gateway.cli.main import _build_parser
from gateway.contracts.errors import CODES
from gateway.lanes.upstream_metrics import build_gauges
from gateway.registry.loader import find_plugin
from gateway.telemetry.exposition import Exposition
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import connect
from gateway.upstream.health import HealthChecks, HealthRules

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md"), *ROOT.glob("bench/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def test_every_error_code_is_documented_as_it_is() -> None:
    """docs/errors.md has one row for each code, with its status and type, and no others."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\w+) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    assert {(int(status), code, kind) for status, code, kind in rows} == {
        (facts.status, code, facts.type) for code, facts in CODES.items()
    }


async def test_every_metric_is_documented_with_its_labels() -> None:
    """docs/operations.md names each family of a gateway in use, and no family that is not there."""
    documented = dict(re.findall(r"^\| `(gateway_\w+)(?:\{([\w,]+)\})?`", _operations(), re.MULTILINE))
    settings = {
        "mcp": {"servers": {"off": {"command": "off", "run": "one", "enabled": False}}},
        "limits": {"shared": True, "tenants": {"team": {"concurrent": 1}}},
    }
    async with LocalGateway(settings) as gateway, connect(gateway.host, gateway.port) as client:
        for path in (b"/v1/models", b"/mcp/services"):
            await client.send(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            await client.read_response()
        upstream = gateway.metrics.get_upstream("demo")
        upstream.retries["stale"] += 1
        upstream.refused["busy"] += 1
        upstream.ejections["127.0.0.1:1", "breaker"] += 1
        upstream.tries["127.0.0.1:1", "ok"] += 1
        upstream.answers["127.0.0.1:1", "200"] += 1
        several = group("ab", ManualClock())
        several.members[0].answers.last_status = "200"
        several.checks = HealthChecks(several, HealthRules())
        gateway.metrics.sources.append(lambda: build_gauges((several,)))
        gateway.metrics.deadlines["head"] += 1
        gateway.metrics.further.append(busy_context().collect_counts)
        page = (await Exposition(gateway.metrics).build_page()).decode()
    families = set(re.findall(r"^# TYPE (gateway_\w+) ", page, re.MULTILINE))
    assert families == set(documented)
    for name, labels in documented.items():
        sample = re.search(rf"^{name}(?:_count)?(?:\{{([^}}]*)\}})? ", page, re.MULTILINE)
        assert sample is not None, name
        found = set(re.findall(r"(\w+)=", sample[1] or "")) - {"le"}
        assert found == set(filter(None, labels.split(","))), name


def test_every_command_is_documented() -> None:
    """docs/commands.md has a row for each word behind `gateway`, with the words below it."""
    page = (ROOT / "docs/commands.md").read_text().partition("\n## All commands\n")[2]
    rows = re.findall(r"^\| (`gateway .*?) \| ", page, re.MULTILINE)
    for path, _ in iterate_leaf_commands(_build_parser()):
        word, below = path[0], " ".join(path[1:])
        found = " ".join(row for row in rows if re.match(rf"`gateway {word}\b", row))
        assert found and re.search(rf"\b{below}\b", found), path


def test_every_decision_record_is_listed_in_its_index() -> None:
    """docs/decisions/README.md lists each record."""
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in ROOT.glob("docs/decisions/0*.md"):
        assert f"({record.name})" in index


@pytest.mark.parametrize(
    "name", ["intent", "memory", "prompt_enhancer", "agent_loop", "response_cache", "redact_pii", "block_list"]
)
def test_every_option_of_a_stage_is_documented_as_it_is(name: str) -> None:
    """docs/stages.md has a row for each, with its default and its description."""
    text = (ROOT / "docs/stages.md").read_text()
    section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    fields = find_plugin("stages", name, folder=ROOT / "plugins").config.model_fields
    assert re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.+) \|$", section, re.MULTILINE) == [
        (key, json.dumps(field.default), field.description) for key, field in fields.items()
    ]


def _operations() -> str:
    return (ROOT / "docs/operations.md").read_text()
