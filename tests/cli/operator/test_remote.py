"""Asking a running gateway: what comes back, and one sentence when nothing does."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from unanswered_ports import refusing_port

from gateway.cli.operator.remote import Remote, RemoteError, build_connection
from gateway.config import Address


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[int, list[tuple[str, str | None, bytes]]]]:
    """A server that answers everything so; its port, and what it was asked: (path, the key or the preference, body)."""
    asked: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            told = (self.headers[name] for name in ("X-Key", "X-Gateway-Key", "Prefer"))
            asked.append((self.path, next(filter(None, told), None), content))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()


def test_remote_request_returns_an_object_and_sends_headers() -> None:
    """To a body that is one, with the headers given; an address to listen on is one to connect to."""
    with answering(200, b'{"a": 1}') as (port, asked):
        for where in (f"http://127.0.0.1:{port}", f"127.0.0.1:{port}/", Address("0.0.0.0", port)):
            remote = Remote(where, None)
            assert remote.send_request("POST", "/x", {"b": "é"}, headers={"X-Key": "k"}, timeout_s=120) == {"a": 1}
    assert [(path, key, json.loads(body)) for path, key, body in asked] == [("/x", "k", {"b": "é"})] * 3


def test_remote_begin_requests_async_response_unless_waiting() -> None:
    """Its answer is 202; who does not wait for the end says so."""
    with answering(202, b'{"id": "run_1"}') as (port, asked):
        remote = Remote(f"127.0.0.1:{port}", None)
        for wait in (True, False):
            assert remote.begin("workflows", "w", "runs", body={"parameters": None}, wait=wait) == {"id": "run_1"}
    body = b'{"parameters": null}'
    assert asked == [("/workflows/w/runs", None, body), ("/workflows/w/runs", "respond-async", body)]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, b'{"error": {"message": "A key is missing."}}', "answered 401: A key is missing."),
        (409, b'{"error": {"message": "It is stale.", "param": "sha256"}}', "answered 409: sha256: It is stale."),
        (500, b"{}", "answered 500: no reason given"),
        (200, b"<html>", "answered 200 without a JSON object: check that it is a gateway"),
        (404, b"[]", "answered 404 without a JSON object"),
        (200, b"[" * 100_000, "without a JSON object"),
    ],
)
def test_remote_error_contains_status_and_gateway_message(status: int, body: bytes, told: str) -> None:
    """With the gateway's own message, if it has one."""
    with answering(status, body) as (port, _), pytest.raises(RemoteError) as caught:
        Remote(f"http://127.0.0.1:{port}", None).send_request("POST", "/x", {}, timeout_s=120)
    assert told in str(caught.value) and f"127.0.0.1:{port}" in str(caught.value)


def test_unanswered_request_reports_the_address_and_doubtful_outcome() -> None:
    """And so is one who does not answer in time: a worker that is stopped decides once it goes on."""
    with refusing_port() as port, pytest.raises(RemoteError, match=rf"127\.0\.0\.1:{port} does not answer") as nobody:
        Remote(f"127.0.0.1:{port}", None).send_request("POST", "/x", {}, timeout_s=120)
    assert "look before you repeat it" not in str(nobody.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = Remote(f"127.0.0.1:{silent.getsockname()[1]}", None)
        for method, is_doubtful in (("POST", True), ("DELETE", True), ("GET", False)):
            with pytest.raises(RemoteError, match="does not answer: timed out") as late:
                remote.send_request(method, "/x", {}, timeout_s=0.05)
            assert ("look before you repeat it" in str(late.value)) is is_doubtful


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y", "http://x/v1", "http://[::1", "http://:80"])
def test_invalid_url_error_names_the_url_flag(url: str) -> None:
    """Is named by its flag."""
    with pytest.raises(RemoteError, match=r"^--url: "):
        Remote(url, None).send_request("POST", "/x", {}, timeout_s=1)


def test_https_url_selects_tls_and_port_443() -> None:
    """A gateway may stand behind something that ends TLS."""
    assert build_connection("https://gw.example", timeout_s=1).port == 443
    assert build_connection("gw.example", timeout_s=1).port == 80


def test_remote_requests_send_the_key_and_escape_path_segments() -> None:
    """What is None is left out; an id stays one part of the path, whatever it is."""
    with answering(200, b"{}") as (port, asked):
        remote = Remote(f"127.0.0.1:{port}", "k")
        assert remote.get("context", "runs", state=None, limit=2, conversation="a&b") == {}
        assert remote.get("context", "runs", "a/../b?c#d e\udcff") == {}
        assert remote.post("context", "runs", "r", step=0, result=None, reason="\x00é\udcff") == {}
    paths, keys, bodies = zip(*asked, strict=True)
    assert paths == (
        "/context/runs?limit=2&conversation=a%26b",
        "/context/runs/a%2F..%2Fb%3Fc%23d%20e%FF",
        "/context/runs/r",
    )
    assert set(keys) == {"k"} and bodies[:2] == (b"", b"")
    assert json.loads(bodies[2]) == {"step": 0, "reason": "\x00é\udcff"}


@pytest.mark.parametrize(
    ("code", "key", "hint"),
    [
        ("missing_api_key", None, r"No key\. \(here: export GATEWAY_API_KEY=\.\.\. with a key of the gateway\)"),
        ("invalid_api_key", "k", r"No key\. \(the key is the one in GATEWAY_API_KEY\)"),
        ("scope_missing", "k", r"No key\. \(the key is the one in GATEWAY_API_KEY\)"),
        ("approval_not_found", "k", r"No key\.$"),
        (["missing_api_key"], None, r"No key\.$"),
    ],
)
def test_unauthorised_remote_request_hints_at_the_key_source(code: object, key: str | None, hint: str) -> None:
    """The gateway names the header, which nobody types here."""
    body = json.dumps({"error": {"code": code, "message": "No key."}}).encode()
    with answering(401, body) as (port, _), pytest.raises(RemoteError, match=hint):
        Remote(f"127.0.0.1:{port}", key).get("context", "approvals")


@pytest.mark.parametrize("key", ["bad\nkey", "schlüssel"])
def test_malformed_key_is_not_sent_or_printed(key: str) -> None:
    """It is not repeated, either."""
    with pytest.raises(RemoteError, match="GATEWAY_API_KEY") as caught:
        Remote("127.0.0.1:1", key).get("x")
    assert key not in str(caught.value)
