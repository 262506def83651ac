"""The tool that asks web servers: real servers on loopback, and everything that must never be connected to."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from gateways import until
from host_names import host_names
from pydantic import ValidationError

from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.http_request import PLUGIN, Config, HttpRequest
from tests.plugins.tools.site import EXCHANGE, Site, ask, asking, raw

# What it does.


async def test_http_tool_spec_shows_hosts_and_flags_of_the_config() -> None:
    """Untrusted by default, in category web; the operator's hosts are told to the model."""
    tool = PLUGIN.build(Config(hosts=("a.example",), requires_approval=True), None)  # type: ignore[arg-type]
    (spec,) = await tool.list_tools()
    assert (spec.name, spec.category, spec.untrusted, spec.requires_approval) == ("http_request", "web", True, True)
    assert "a.example" in spec.description
    assert set(spec.parameters["properties"]) == {"url", "method", "headers", "body"}
    (spec,) = await HttpRequest(Config(untrusted=False)).list_tools()
    assert (spec.untrusted, spec.requires_approval) == (False, False)


async def test_response_is_returned_with_status_headers_and_body(site: Site) -> None:
    """Status line, the headers that matter, a blank line, the body as text."""
    url = await site.says(text="grüß dich", headers={"ETag": '"1"', "X-Other": "no"})
    result = await ask(url + "/a?b=c")
    assert result == ToolResult('HTTP 200 OK\ncontent-type: text/plain; charset=utf-8\netag: "1"\n\ngrüß dich')
    ((method, path, headers, body),) = site.requests
    assert (method, path, body, headers["User-Agent"]) == ("GET", "/a?b=c", b"", "twolane")


async def test_method_headers_and_body_are_sent_as_given(site: Site) -> None:
    """A POST with its content type and body."""
    url = await site.says(status=201, text="made")
    result = await ask(url, method="POST", headers={"Content-Type": "application/json", "X-A": "1"}, body='{"a": "é"}')
    assert result.ok and result.content.startswith("HTTP 201 Created\n")
    ((method, _, headers, body),) = site.requests
    assert (method, headers["Content-Type"], headers["X-A"]) == ("POST", "application/json", "1")
    assert body == '{"a": "é"}'.encode()


async def test_server_error_is_a_failed_result_with_the_response_text(site: Site) -> None:
    """The model reads what the server said."""
    result = await ask(await site.says(status=404, text="no such page"))
    assert not result.ok and "HTTP 404 Not Found" in result.content and "no such page" in result.content


async def test_binary_response_is_described_without_its_bytes(site: Site) -> None:
    """Type and size, no bytes."""
    result = await ask(await site.says(body=b"\x89PNG" + bytes(996), content_type="image/png"))
    assert result == ToolResult("HTTP 200 OK\ncontent-type: image/png\n\n[1000 bytes that are not text: not shown]")


async def test_undecodable_response_headers_become_replacement_characters() -> None:
    """Bytes of another charset come out as replacement characters; the result can always be encoded."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 \xff\xfe\r\nETag: \xe9\xff\r\nContent-Length: 2\r\n\r\nok")

    async with raw(answer) as url:
        result = await ask(url)
    assert result.ok and result.content.encode() and "etag: �" in result.content


async def test_no_cookie_is_kept(site: Site) -> None:
    """The next request does not send cookies that an answer has set."""
    url = await site.says(text="", headers={"Set-Cookie": "a=b; Path=/"})
    async with asking(HttpRequest(Config(private_networks=True))) as asked:
        await asked(url)
        await asked(url)
    assert len(site.requests) == 2 and "Cookie" not in site.requests[1][2]


async def test_no_proxy_of_the_environment_is_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would connect to whatever it is told, past every check."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await ask(await site.says(text="direct"))).ok


# Where it never connects to.


class Names(AbstractResolver):
    """Answers each look-up with the next of its lists of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.answers.pop(0)
        ]

    async def close(self) -> None:
        return


class Inside:
    """A server of this machine that must not be reached."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    def config(self, host: str) -> Config:
        """Everything but the address is allowed."""
        return Config(hosts=(f"{host}:{self.port}",))


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    listener = Inside()
    server = await asyncio.start_server(listener.connected, "0.0.0.0", 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.2", "127.1", "0.0.0.0", "0", "2130706433", "0x7f000001", "0x7f.1", "017700000001"),
        *("0177.0.0.1", "127.0.0.1.", "１２７.0.0.1", "127。0。0。1", "localhost", "LOCALHOST", "localhost."),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::127.0.0.1]", "[::]"),
    ],
)
async def test_loopback_is_not_reached_in_any_address_spelling(inside: Inside, host: str) -> None:
    """Decimal, octal, hexadecimal, short, mapped, full-width, or a name: 0 connections (T8)."""
    result = await ask(f"http://{host}:{inside.port}/", config=inside.config(host))
    assert not result.ok and result.content
    await asyncio.sleep(0)
    assert inside.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1/",
            "http://localhost/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "https://127.0.0.1/",
        ),
        *("http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://100.100.100.200/"),
        *(
            "http://10.0.0.1/",
            "http://192.168.1.1/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://0.0.0.0/",
        ),
    ],
)
async def test_private_addresses_are_refused_with_the_reason(url: str) -> None:
    """Loopback, private, link-local, metadata: the model reads why, not which address a name has."""
    result = await ask(url, config=Config(timeout=5.0))
    assert not result.ok and "not on the public internet" in result.content


async def test_every_resolved_address_of_a_host_is_checked(inside: Inside) -> None:
    """A name with a public and a private address: the private one is not tried."""
    tool = HttpRequest(
        Config(hosts=(f"two.example:{inside.port}",), timeout=120), resolver=Names(["127.0.0.1", "::ffff:127.0.0.1"])
    )
    async with asking(tool) as asked:
        result = await asked(f"http://two.example:{inside.port}/")
    assert "not on the public internet" in result.content and inside.connections == 0


async def test_dns_rebinding_reaches_no_private_address(inside: Inside) -> None:
    """T8: each connection is judged on what it connects to; there is no look-up before it that could differ."""
    names = Names(["10.0.0.1"], ["127.0.0.1"], ["0.0.0.0"])
    async with asking(HttpRequest(inside.config("rebind.example"), resolver=names)) as asked:
        for _ in range(3):
            result = await asked(f"http://rebind.example:{inside.port}/")
            assert "not on the public internet" in result.content
    assert names.answers == [] and inside.connections == 0


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "100.100.100.200"])
async def test_harmless_request_cannot_reach_metadata_addresses_by_name(address: str) -> None:
    """Its name was judged, and may lead anywhere."""
    tool = HttpRequest(Config(private_networks=True), resolver=Names([address]))
    async with asking(tool) as asked:
        result = await asked("http://service.example/", harmless=True)
    assert not result.ok and "hands out credentials of the machine" in result.content


async def test_unresponsive_name_server_delays_no_request_to_other_hosts(site: Site) -> None:
    """However many names it is silent for: each call that waits for one ends with its own timeout."""
    port = (await site.says(text="here")).rpartition(":")[2]
    silent = [f"silent-{i}.example" for i in range(40)]
    with host_names({"up.example": ["127.0.0.1"]} | dict.fromkeys(silent)) as names:
        async with asking(HttpRequest(Config(private_networks=True, timeout=3600))) as asked:
            waiting = [asyncio.create_task(asked(f"http://{one}:{port}/")) for one in silent]
            await until(lambda: sum(names.asked[one] for one in silent) >= 4)
            assert (await asyncio.wait_for(asked(f"http://up.example:{port}/"), 30)).content.endswith("here")
            names.go_on.set()
            assert {(await one).content.partition("failed: ")[2] for one in waiting} == {"its name cannot be resolved."}


@pytest.mark.parametrize(
    "url", ["http://1.1.1.1:22/", "http://example.com:8080/", "https://example.com:80443/", "http://127.0.0.1:6379/"]
)
async def test_ports_other_than_web_ports_are_refused(url: str) -> None:
    """A request can be a command to a server of another kind."""
    result = await ask(url, config=Config())
    assert not result.ok and result.content.startswith("Refused: ")


async def test_only_hosts_listed_by_the_operator_are_contacted(site: Site) -> None:
    """T13: with a list of hosts all others are refused, also on another port of the same host."""
    url = await site.says(text="in")
    host = url.removeprefix("http://")
    for other in (
        "https://evil.example/?all=I+know",
        "http://127.0.0.1/",
        f"http://127.0.0.1.evil.example:{url[-5:]}/",
    ):
        result = await ask(other, config=Config(hosts=(host,), private_networks=True))
        assert not result.ok and "hosts that the operator allows" in result.content
    assert (await ask(url, config=Config(hosts=(host,), private_networks=True))).ok
    assert len(site.requests) == 1


def test_configuration_refuses_a_host_written_as_url() -> None:
    """The configuration says how a host is written."""
    with pytest.raises(ValidationError, match=r"such as api\.example\.com"):
        Config(hosts=("http://a.example/x",))


@pytest.mark.parametrize(
    "url", ["http://good@evil/", "http://evil\\@good/", "file:///etc/passwd", "http://h:0/", "http://a b/"]
)
async def test_ambiguous_or_non_http_url_is_refused(url: str) -> None:
    """T10: nothing is sent; the text says what is wrong."""
    result = await ask(url)
    assert not result.ok and result.content.startswith("Refused: `url`")


async def test_invalid_arguments_return_a_refused_result() -> None:
    """T25: whatever the arguments are, the model gets a text."""
    async with asking(HttpRequest(Config())) as asked:
        for arguments in ({"url": 1}, {"url": "http://h/", "headers": {"Host": "x"}}, {"url": "http://h/", "body": 1}):
            result = await asked(**arguments)
            assert not result.ok and result.content.startswith("Refused: ")


# What nobody is asked about.


async def refused(config: Config, **arguments: Any) -> str | None:
    """What is said before anybody is asked; never anything else than what the call says."""
    tool = HttpRequest(config, resolver=Names())  # which fails for any look-up
    call = ToolCall(id="c", tool="http_request", arguments=arguments)
    refusal = await tool.refusal(call, EXCHANGE)
    if refusal is not None:
        assert await tool.call(call, EXCHANGE) == ToolResult(refusal, ok=False)
    await tool.close()
    return refusal


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "Refused: `url` must begin with http:// or https://"),
        ("http://good@evil/", "Refused: `url` has a user"),
        ("http://example.com:22/", "which is not a port of the web"),
        *(
            (f"http://{host}/", "not on the public internet")
            for host in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]")
        ),
    ],
)
async def test_forbidden_urls_are_refused_before_approval_is_requested(url: str, words: str) -> None:
    """Schemes, ports and private addresses, in the words of the call, without a look-up."""
    assert words in str(await refused(Config(), url=url))


async def test_unlisted_host_is_refused_before_approval_is_requested() -> None:
    """By the list of the operator; one that is on it may be judged."""
    config = Config(hosts=("a.example",))
    assert "not one of the hosts that the operator allows" in str(await refused(config, url="https://b.example/"))
    assert await refused(config, url="https://a.example/") is None


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "localhost.", "db.localhost"])
async def test_localhost_names_are_refused_before_approval_is_requested(name: str) -> None:
    """It needs no look-up; where private networks are allowed, it may be judged."""
    call = ToolCall(id="c", tool="http_request", arguments={"url": f"http://{name}/"})
    assert "not on the public internet" in str(await HttpRequest(Config()).refusal(call, EXCHANGE))
    assert await HttpRequest(Config(private_networks=True)).refusal(call, EXCHANGE) is None


async def test_refusal_accepts_ordinary_requests_without_resolving_names() -> None:
    """The addresses of its name are nobody's business before somebody allowed it."""
    assert await refused(Config(), url="https://example.com/", method="DELETE") is None
    assert await refused(Config(), url="http://1.1.1.1/") is None


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 0.5), ("2m", 120.0)])
def test_timeout_accepts_numbers_and_duration_texts(timeout: Any, seconds: float) -> None:
    """As everywhere in the configuration."""
    assert Config(timeout=timeout).timeout == seconds


# Workflows.


def test_workflow_value_adds_nothing_to_a_json_or_form_body() -> None:
    """JSON and forms are known by their type, whatever the case of the header's name."""
    tool, values = HttpRequest(Config()), {"params": {"x": '", "admin": true, "y": "&a=b'}}
    template = {"url": "https://a.example/", "body": '{"name": "{{params.x}}"}'}
    assert json.loads(tool.bind(template, values)["body"]) == {"name": values["params"]["x"]}
    form = {"headers": {"content-TYPE": "application/x-www-form-urlencoded"}, "body": "name={{params.x}}"}
    assert parse_qsl(tool.bind(template | form, values)["body"]) == [("name", values["params"]["x"])]
    assert tool.bind(template | {"body": "{{params.x}}"}, values)["body"] == values["params"]["x"]
