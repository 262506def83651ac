"""Odd bodies pass as they are, and odd surroundings of the process do not matter."""

import sys
import tempfile
from pathlib import Path

import pytest
from functional.through import ask, post, through
from gateways import config, fetch, scrape

from gateway.testing.messages import describe_differences
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="absent"),
        pytest.param([b"Content-Type: text/plain"], id="text"),
        pytest.param([b"Content-Type: application/json; charset=utf-16"], id="utf-16"),
        pytest.param([b"Content-Type: application/json; charset=bogus"], id="bogus"),
        pytest.param([b"Content-Type:"], id="empty"),
        pytest.param([b"content-type: a/b", b"Content-Type: c/d"], id="two"),
        pytest.param([b"Content-Type: \xff\xfe"], id="not-ascii"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param('{"model": "m"}'.encode("utf-16"), id="utf-16"),
        pytest.param(b'\xef\xbb\xbf{"model": "m"}', id="byte-order-mark"),
        pytest.param(b"{not json", id="not-json"),
        pytest.param(b'{"n": 1e400, "a": NaN, "a": 2}', id="odd-numbers"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"\x1f\x8b\x08\x00broken", id="broken-gzip"),
        pytest.param(b"", id="empty"),
    ],
)
async def test_malformed_bodies_pass_unchanged(lines: list[bytes], body: bytes) -> None:
    """Whatever the type says and the body is: it is the upstream's to judge."""
    message = post(body, b"/v1/chat/completions", *lines)
    async with through() as (gateway, upstream):
        assert (await ask(gateway, message)).status == 200
        (request,) = upstream.requests
    assert not describe_differences(message, request.raw, may_differ=frozenset((b"host",)))


def under(shell: str) -> tuple[str, ...]:
    """The gateway's command line, run by a shell that first does this; `exec "$@"` becomes the gateway."""
    return ("/bin/sh", "-c", shell, "sh", sys.executable, "-m", "gateway")


PLAIN_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
SURROUNDINGS = {
    "bare": (
        {**PLAIN_LOCALE, "TZ": "Asia/Kathmandu", "PYTHONOPTIMIZE": "2"},
        'unset HOME PATH USER LOGNAME; umask 000; cd /proc && exec "$@" <&-',
    ),
    "no-streams": (
        {"TZ": "No/Such+99:99", "PYTHONPATH": str(ROOT)},
        'umask 777; d=$(mktemp -d) && cd "$d" && rmdir "$d" && exec "$@" <&- >&- 2>&-',
    ),
    "few-files": (
        {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1", "PYTHONPATH": str(ROOT)},
        'ulimit -n 64; exec "$@"',
    ),
}


@pytest.mark.parametrize(
    ("surroundings", "workers"), [("bare", 1), ("no-streams", 1), ("no-streams", 2), ("few-files", 2)]
)
async def test_gateway_runs_in_unusual_process_environments(surroundings: str, workers: int) -> None:
    """Locale C, odd time zones, asserts off, no HOME, a folder that cannot be written or is gone, closed streams.

    It starts, serves, shows its metrics and ends with code 0.
    """
    env, shell = SURROUNDINGS[surroundings]
    async with FakeUpstream() as upstream:
        running = GatewayProcess(config(upstream.base_url, workers=workers), env=env, command=under(shell))
        async with running as gateway:
            for _ in range(4):
                assert (await fetch(gateway)).status == 200
            labels = 'code="200",method="GET",mode="passthrough",route="/v1/"'
            assert (await scrape(gateway))[f"gateway_http_requests_total{{{labels}}}"] == 4
    assert gateway.returncode == 0
    assert "Traceback" not in gateway.read_stderr()


async def test_gateway_handles_non_ascii_text_in_a_plain_locale() -> None:
    """A configuration and a log in other scripts need no locale."""
    text = config(None, prompts={"greeting": {"text": "你好 — grüß Gott"}}, logging={"access": True, "format": "text"})
    async with GatewayProcess(text, env=PLAIN_LOCALE) as gateway:
        assert (await fetch(gateway, "/nowhere/ключ".encode())).status in (400, 404)
    assert gateway.returncode == 0


async def test_gateway_serves_over_ipv6_only() -> None:
    """Listening on ::1, with an upstream on ::1, and a banner that can be pasted."""
    async with FakeUpstream(host="::1") as upstream:
        async with GatewayProcess(config(upstream.base_url), host="::1") as gateway:
            assert (await fetch(gateway)).status == 200
            assert upstream.requests[0].list_values(b"host") == [f"[::1]:{upstream.port}".encode()]
        assert f"http://[::1]:{gateway.port}/v1" in gateway.read_stdout()


async def test_gateway_writes_nothing_to_its_working_directory() -> None:
    """Passthrough needs no file: the folder it runs in stays as it is."""
    async with FakeUpstream() as upstream:
        command = under(f'cd "$TMPDIR" && PYTHONPATH={ROOT} exec "$@"')
        with tempfile.TemporaryDirectory() as folder:
            async with GatewayProcess(config(upstream.base_url), env={"TMPDIR": folder}, command=command) as gateway:
                await fetch(gateway)
            assert not list(Path(folder).iterdir())
