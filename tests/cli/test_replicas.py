"""`gateway check-config --replicas N`: the connections of the store, and what gateways share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.testing.ports import free_port
from tests.postgres import pooler, postgres_server

LIMITS = "{requests_per_minute: 60, cost_per_day: 5}"
CONFIG = f"""
workers: 2
store: "%s?pool=3"
keys: [{{name: ci, sha256: {"0" * 64}, scopes: [passthrough], limits: {LIMITS}}}]
usage: {{enabled: true, prices: prices.yaml}}
mcp: {{servers: {{local: {{command: sh}}, far: {{url: "http://127.0.0.1:1/mcp"}}}}}}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.yaml").write_text("currency: EUR\nprices: [{model: '*', input: 1, output: 2}]\n")


def check(
    store: str, replicas: int, capsys: pytest.CaptureFixture[str], *, more: str = "", server: str = "run: each"
) -> tuple[int, str]:
    """Return the exit code of the command, and what it writes.

    `more` are further lines of the configuration, `server` is a setting of the local MCP server.
    """
    Path("gateway.yaml").write_text((CONFIG % store).replace("command: sh", f"command: sh, {server}") + more)
    code = main(["check-config", "--replicas", str(replicas)])
    written = capsys.readouterr()
    return code, written.out + written.err


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The end of the URL of a server with a hundred connections, of which PostgreSQL keeps three for superusers."""
    with postgres_server("CREATE ROLE few LOGIN CONNECTION LIMIT 20") as place:
        yield place


@pytest.mark.postgres
def test_connections_are_held_against_the_limit_of_the_server(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of the role, through PgBouncer, and with the one that an upgrade starts beside the others."""
    code, text = check(f"postgresql://owner@{server}", 4, capsys)
    assert code == 0
    assert "  connections 4 gateways x 2 workers x 3 = 24, of 97 that the server has\n" in text
    code, text = check(f"postgresql://owner@{server}", 16, capsys)
    assert code == 0
    assert "= 96, of 97 that the server has; 102 are needed while one is replaced by a new one\n" in text
    code, text = check(f"postgresql://owner@{server}", 17, capsys)
    assert code == 1
    assert "17 gateways x 2 workers x 3 = 102 connections, and the server has 97: lower `pool`" in text
    code, text = check(f"postgresql://few@{server}", 4, capsys)
    assert code == 1
    assert "24 connections, and the server has 20" in text
    with pooler(server) as pooled:
        assert "of 97 that the server has" in check(f"postgresql://owner@{pooled}", 4, capsys)[1]


def test_parts_that_gateways_do_not_share_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of this configuration; a server that does not answer is named, and is no mistake in it."""
    store = f"postgresql://gateway@127.0.0.1:{free_port()}/gateway"
    code, text = check(store, 3, capsys)
    assert code == 0
    assert "  connections 3 gateways x 2 workers x 3 = 18; the limit of the server is not known: PostgreSQL: " in text
    assert "  shared      runs, approvals, " in text and ", usage, limits and budgets\n" in text
    assert "  apart       MCP servers that it starts (local), caches, " in text
    code, text = check(store, 3, capsys, more="limits: {valkey: 'valkey://127.0.0.1/0'}\n")
    assert code == 0 and ", usage, limits and budgets (in Valkey)\n" in text
    code, text = check(store, 3, capsys, more="limits: {shared: false}\n")
    assert code == 0 and ", usage, budgets\n" in text
    assert "  apart       requests_per_minute (3 times the limit in all), MCP servers that it starts (local), " in text


def test_port_between_gateways_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Where something of one gateway is used by others; loopback is of no use to other machines."""
    store = f"postgresql://gateway@127.0.0.1:{free_port()}/gateway"
    code, text = check(store, 3, capsys)
    assert code == 0 and "  replicas " not in text
    more = "replicas: {listen: '0.0.0.0:8082', address: gw-1.example}\n"
    code, text = check(store, 3, capsys, more=more, server="run: one")
    assert code == 0 and "budgets, MCP servers (local)\n  replicas    gw-1.example, 8082: only gateways" in text
    assert "  apart       caches, " in text
    code, text = check(store, 3, capsys, server="run: one")
    assert code == 0 and "any free port: other machines cannot reach it, so set `replicas.listen`" in text


def test_a_file_is_refused_as_a_store_of_several_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = check("sqlite:///gateway.db", 2, capsys)
    assert code == 1
    assert "names no database server: gateways on several machines need one, such as postgresql://" in text


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_number_of_replicas_is_positive(number: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check-config", "--replicas", number])
