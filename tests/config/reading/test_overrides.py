"""Variables and flags over the file."""

import pytest
from config.folder import Folder

from gateway.config import Address, ConfigError, load

FILE = """\
listen: 127.0.0.1:9000
context: {chain: other, upstream: a}
chains: {other: [{use: memory}]}
upstreams:
  - {name: a, base_url: http://a, api_key: one}
  - {name: b, base_url: http://b, api_key_file: key}
mcp: {servers: {My Server: {command: x}}}
"""


@pytest.fixture(autouse=True)
def key(folder: Folder) -> None:
    folder.write("key", "two\n")


def test_defaults_are_below_the_file_below_variables_below_flags(folder: Folder) -> None:
    """Each layer replaces only what it names."""
    assert load(None, environ={}, flags={}).settings.listen.port == 8080
    assert folder.load(FILE).settings.listen.port == 9000
    environ = {"GATEWAY__LISTEN": "127.0.0.1:9001", "GATEWAY__WORKERS": "3"}
    assert folder.load(FILE, environ).settings.listen.port == 9001
    settings = folder.load(FILE, environ, listen="127.0.0.1:9002", workers=None).settings
    assert (settings.listen.port, settings.workers, settings.context.chain) == (9002, 3, "other")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GATEWAY__CONTEXT__CHAIN", "assistant", "context.chain='assistant'"),
        ("gateway__context__chain", "assistant", "context.chain='assistant'"),
        ("GATEWAY__CONTEXT__UPSTREAM", "null", "context.upstream=None"),
        ("GATEWAY__LIMITS__HEAD", "64KiB", "limits.head=65536"),
        ("GATEWAY__LIMITS__DRAIN", "0", "limits.drain=0.0"),
        ("GATEWAY__METRICS__ENABLED", "off", "metrics.enabled=False"),
        ("GATEWAY__PASSTHROUGH__PATHS", "[/v1/, /x/]", "passthrough.paths=('/v1/', '/x/')"),
        ("GATEWAY__PASSTHROUGH__PATHS__0", "/y/", "passthrough.paths=('/y/',)"),
        ("GATEWAY__LISTEN", "[::1]:80", "listen=Address(host='::1', port=80)"),
        ("GATEWAY__UPSTREAMS__1__NAME", "c", "upstreams[1].name='c'"),
        ("GATEWAY__UPSTREAMS__2", "{name: c, base_url: 'http://c'}", "upstreams[2].name='c'"),
        ("GATEWAY__UPSTREAMS__0__TIMEOUTS__IDLE", "1m", "upstreams[0].timeouts.idle=60.0"),
        ("GATEWAY__UPSTREAMS__0__API_KEY", "12345", "upstreams[0].api_key.reveal()='12345'"),
        ("GATEWAY__UPSTREAMS__0__API_KEY", "$a # ${b} '", None),
        ("GATEWAY__UPSTREAMS__0__API_KEY", "no", "upstreams[0].api_key.reveal()='no'"),
        ("GATEWAY__UPSTREAMS__0__API_KEY_FILE", "key", "upstreams[0].api_key.reveal()='two'"),
        ("GATEWAY__UPSTREAMS__1__API_KEY", "three", "upstreams[1].api_key.reveal()='three'"),
        ("GATEWAY__PROMPTS__DEFAULT__TEXT", "[Be: nice]", "prompts['default'].text=='[Be: nice]'"),
        (
            "GATEWAY__CHAINS__ASSISTANT__3__WITH__MAX_TOOL_CALLS",
            "5",
            "chains['assistant'][3].with_['max_tool_calls']=5",
        ),
        ("GATEWAY__CHAINS__OTHER__0__WITH__A", "[1, x]", "chains['other'][0].with_['a']=[1, 'x']"),
        ("GATEWAY__CHAINS__OTHER__0__WITH__A", "[::1]:80", "chains['other'][0].with_['a']='[::1]:80'"),
        ("GATEWAY__CHAINS__OTHER__0__WITH__A", "no", "chains['other'][0].with_['a']='no'"),
        ("GATEWAY__CHAINS__OTHER__0__WITH__A", "5m", "chains['other'][0].with_['a']='5m'"),
        ("GATEWAY__MCP__SERVERS__MY SERVER__TIMEOUT", "5s", "mcp.servers['My Server'].timeout=5.0"),
        ("GATEWAY__LIMITS", "", "limits.headers=256"),
        ("GATEWAY_LISTEN", "nonsense", "listen.port=9000"),
        ("XGATEWAY__LISTEN", "nonsense", "listen.port=9000"),
    ],
)
def test_environment_variable_overrides_the_named_setting(
    folder: Folder, name: str, value: str, expected: str | None
) -> None:
    """Single values are taken as they are, lists and sections are read as YAML, a plugin's values as in the file."""
    if expected is None:
        assert "visible ASCII" in folder.problem(FILE, {name: value})
        return
    settings = folder.load(FILE, {name: value}).settings
    path, _, literal = expected.partition("=")
    assert eval(f"settings.{path} == {literal.removeprefix('=')}", {"settings": settings, "Address": Address})


def test_lists_are_filled_in_the_order_of_their_numbers(folder: Folder) -> None:
    """From 0 on without a file, and past 9."""
    environ = {f"GATEWAY__ALLOWED_HOSTS__{i}": f"h{i}" for i in range(12)}
    assert folder.load("", environ).settings.allowed_hosts == tuple(f"h{i}" for i in range(12))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("GATEWAY__LISTNE", "x", "GATEWAY__LISTNE: unknown key 'listne'; did you mean 'listen'?"),
        ("GATEWAY__CONTEXT__CHIAN", "x", "GATEWAY__CONTEXT__CHIAN: unknown key 'chian'; did you mean 'chain'?"),
        (
            "GATEWAY__CONTEXT__CHAIN",
            "x",
            "no such chain is declared; declared: 'assistant', 'other'",
        ),
        ("GATEWAY__WORKERS", "many", "GATEWAY__WORKERS: expected a whole number, found text"),
        ("GATEWAY__WORKERS", "", "GATEWAY__WORKERS: expected a whole number"),
        ("GATEWAY__", "x", "GATEWAY__: expected GATEWAY__KEY"),
        ("GATEWAY__CONTEXT__", "x", "GATEWAY__CONTEXT__: expected GATEWAY__KEY"),
        ("GATEWAY__UPSTREAMS__7__NAME", "x", "upstreams is a list of 2: expected a number from 0 to 2"),
        ("GATEWAY__UPSTREAMS__A__NAME", "x", "upstreams is a list of 2"),
        ("GATEWAY__LISTEN__PORT", "1", "GATEWAY__LISTEN__PORT: listen is neither a section nor a list"),
        ("GATEWAY__UPSTREAMS__2__NAME", "c", "GATEWAY__UPSTREAMS__2__NAME: expected 'base_url', or 'endpoints'"),
        ("GATEWAY__UPSTREAMS", "[{name: a, base_url: x}]", "GATEWAY__UPSTREAMS upstreams[0].base_url: expected a URL"),
        ("GATEWAY__UPSTREAMS", "[", "GATEWAY__UPSTREAMS: not valid YAML"),
        ("GATEWAY__ALLOWED_HOSTS", "a.example", "GATEWAY__ALLOWED_HOSTS: expected a list, found text"),
        ("GATEWAY__LISTEN", "\udcff:1", "GATEWAY__LISTEN: is not valid UTF-8"),
        ("GATEWAY__X\udcff", "1", "GATEWAY__X\\udcff: is not valid UTF-8"),
    ],
)
def test_invalid_environment_variable_is_reported_by_its_name(
    folder: Folder, name: str, value: str, problem: str
) -> None:
    """The name stands for the path; what lies deeper is added."""
    assert problem in folder.problem(FILE, {name: value})


def test_a_variable_that_is_set_in_two_cases_is_refused(folder: Folder) -> None:
    """Chance would decide which of them wins."""
    problem = folder.problem("", {"GATEWAY__WORKERS": "1", "gateway__workers": "2"})
    assert problem == "gateway__workers: is also set as GATEWAY__WORKERS: upper and lower case are the same here"


def test_a_variable_never_shows_its_value(folder: Folder) -> None:
    """Also when it landed in the wrong key."""
    for key in ("WORKERS", "LISTEN", "UPSTREAMS__0__BASE_URL", "LOGGING__LEVEL", "CANARYX", "UPSTREAMS", "CONTEXT"):
        assert "sk-canary" not in folder.problem(
            "upstreams: [{name: a, base_url: 'http://a'}]", {f"GATEWAY__{key}": "sk-canary"}
        )


def test_the_flag_port_replaces_only_the_port(folder: Folder) -> None:
    """Of the file's address, of the flag's, of the default."""
    assert folder.load(FILE, port=1).settings.listen == Address("127.0.0.1", 1)
    assert folder.load(FILE, listen="[::1]:5", port="0").settings.listen == Address("::1", 0)
    assert load(None, environ={}, flags={"port": 7}).settings.listen == Address("127.0.0.1", 7)
    assert folder.problem("", port=70000) == "--port: must be between 0 and 65535"
    assert folder.problem("", port="x") == "--port: expected a whole number, found text"
    assert folder.problem("listen: nonsense", port=5).startswith("gateway.yaml:1:9 listen: expected")
    assert folder.problem("listen: 0.0.0.0:1", port=5).startswith("gateway.yaml:1:9 listen: '0.0.0.0:5' is open")


def test_the_flag_upstream_replaces_all_upstreams(folder: Folder) -> None:
    """By one that is called `default`, for the context lane too."""
    settings = folder.load(FILE, upstream="http://127.0.0.1:1/v1").settings
    assert [(u.name, u.base_url) for u in settings.upstreams] == [("default", "http://127.0.0.1:1/v1")]
    assert settings.context.upstream is None
    assert folder.problem("", upstream="h:1") == "--upstream: expected a URL that begins with http:// or https://"


def test_invalid_flag_is_reported_by_its_name(folder: Folder) -> None:
    """And a flag that does not exist is a mistake of the program."""
    assert folder.problem("", listen="8080").startswith('--listen: expected "host:port"')
    assert folder.problem("", listen="0.0.0.0:80").startswith("--listen: '0.0.0.0:80' is open to others")
    assert folder.problem("", workers=0) == "--workers: must be between 1 and 256"
    with pytest.raises(TypeError, match="unknown flags"):
        load(None, environ={}, flags={"verbose": True})
    with pytest.raises(ConfigError) as caught:
        load(None, environ={"GATEWAY__WORKERS": "0"}, flags={"listen": "x"})
    assert len(caught.value.problems) == 2
