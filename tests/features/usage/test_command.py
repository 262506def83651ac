"""`gateway usage`: a table of who used what."""

import json

import pytest
from cli_cases import told

from gateway.cli.main import main
from gateway.cli.operator.remote import Remote
from gateway.contracts.storage.usage import StoredUsage
from gateway.features.usage.command import list_usage
from gateway.testing.local_gateway import LocalGateway

ALL = {"since": "2026-01-01", "until": "2026-12-31"}
ROWS = [
    StoredUsage(
        "2026-11-26", "acme", "bob", "gpt-4.1", "openai", "context", "USD", 3, 1, 1, 1, 30, 4, 900, 2, 1_234_500_000
    ),
    StoredUsage("2026-11-26", "acme", "bob", "red\x1b[2J", "openai", "context", "", 12, input=7),
]


async def test_usage_command_prints_a_table() -> None:
    """Names to the left, numbers to the right; no terminal obeys the name of a model."""
    async with LocalGateway({"upstreams": []}) as gateway:
        await gateway.gateway._shared.store.add_usage(ROWS, writer="w", number=1, now_s=1.0)
        lines = await told(lambda: list_usage(Remote(gateway.base_url, None), **ALL, by="key,model", as_json=False))
        assert lines == [
            "usage is not recorded: set usage.enabled in gateway.yaml",
            "key  model         requests  rejected  cut  estimated  input  cached  output  reasoning        cost",
            "bob  gpt-4.1              3         1    1          1     30       4     900          2  1.2345 USD",
            "bob  red\\u{1b}[2J        12         0    0          0      7       0       0          0           -",
        ]


async def test_usage_command_prints_json_lines_or_none() -> None:
    """One object a line, as the page has it."""
    async with LocalGateway({"upstreams": []}) as gateway:
        await gateway.gateway._shared.store.add_usage(ROWS[:1], writer="w", number=1, now_s=1.0)
        (line,) = await told(lambda: list_usage(Remote(gateway.base_url, None), **ALL, by="day", as_json=True))
        assert json.loads(line)["cost"] == 1.2345
        lines = await told(
            lambda: list_usage(Remote(gateway.base_url, None), since=None, until="2025-01-01", by="day", as_json=False)
        )
        assert lines[-1] == "none"


def test_usage_rejects_unknown_options_with_exit_code_2() -> None:
    """By the parser."""
    with pytest.raises(SystemExit) as ended:
        main(["usage", "--days", "3"])
    assert ended.value.code == 2
