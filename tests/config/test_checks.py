"""The checks of settings that must fit together."""

import pytest
from config.folder import Folder

TWO = "upstreams: [{name: a, base_url: 'http://a'}, {name: b, base_url: 'http://b', paths: [/b/]}]\n"
SHA = "0" * 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "upstreams:\n  - {name: a, base_url: 'http://a'}\n  - {name: a, base_url: 'http://b'}\n",
            "gateway.yaml:3:12 upstreams[1].name: the same name as at gateway.yaml:2:12: each is used once",
        ),
        (
            f"keys:\n  - {{name: a, sha256: '{SHA}', scopes: [admin]}}\n"
            f"  - {{name: a, sha256: '{SHA[1:]}1', scopes: [admin]}}\n",
            "gateway.yaml:3:12 keys[1].name: the same name",
        ),
        (
            f"keys:\n  - {{name: a, sha256: '{SHA[1:]}A', scopes: [admin]}}\n"
            f"  - {{name: b, sha256: '{SHA[1:]}a', scopes: [admin]}}\n",
            "gateway.yaml:3:23 keys[1].sha256: the same sha256",
        ),
        (f"keys: [{{name: a, sha256: '{SHA}', scopes: []}}]", "keys[0].scopes: expected at least one scope"),
        (TWO + "context: {upstream: c}", "2:21 context.upstream: no upstream 'c' is declared; declared: 'a', 'b'"),
        ("context: {upstream: c}", "1:21 context.upstream: no upstream 'c' is declared; none is"),
        ("context: {chain: asistant}", "context.chain: no chain 'asistant' is declared; did you mean 'assistant'?"),
        (
            "approvals: {chains: {asistant: hold}}",
            "approvals.chains.asistant: no chain 'asistant' is declared; did you",
        ),
        ("context: {prompt: p}", "context.prompt: no prompt 'p' is declared; declared: 'default'"),
        ("listen: 0.0.0.0:80", "listen: '0.0.0.0:80' is open to others and there are no keys: add keys, or listen on"),
        ("listen: '[::]:80'\nkeys: []", "listen: '[::]:80' is open to others"),
        ("admin: {listen: 10.0.0.1:9}", "1:17 admin.listen: '10.0.0.1:9' is open to others"),
        ("admin: {listen: 127.0.0.1:8080}", "admin.listen: the same address as listen"),
        (
            "upstreams: [{name: a, base_url: 'http://a', tls: {verify: false}}]",
            "1:45 upstreams[0].tls: there is no TLS with an http:// URL",
        ),
        (
            "upstreams: [{name: a, base_url: 'https://a', tls: {key_file: gateway.yaml}}]",
            "1:52 upstreams[0].tls.key_file: needs cert_file as well",
        ),
        ("prompts: {p: {}}", "1:14 prompts.p: expected text or file"),
        ("prompts: {p: {text: a, file: gateway.yaml}}", "1:24 prompts.p.file: text and file are both given"),
        ("mcp: {servers: {m: {}}}", "1:20 mcp.servers.m: expected command or url"),
        ("mcp: {servers: {m: {command: a, url: 'http://a'}}}", "command and url are both given: keep one of the two"),
        ("approvals: {notify: [{secret: abcdefgh}]}", "1:22 approvals.notify[0]: expected webhook"),
        ("tools: {http_request: }", "tools.http_request: write {} to have it with its defaults, or remove it"),
        ("tools: {'my tool': {}}", "1:9 tools['my tool']: expected a name of 1 to 64 letters, digits, '_' or '-'"),
        ("prompts: {p: {file: nope.md}}", "1:21 prompts.p.file: no such file:"),
    ],
)
def test_inconsistent_settings_are_reported(folder: Folder, text: str, problem: str) -> None:
    """With its place and the way out."""
    assert problem in folder.problem(text)


@pytest.mark.parametrize(
    "text",
    [
        TWO + "context: {upstream: b}",
        "context: {chain: assistant, prompt: default}\nchains: {}\nprompts: {}",
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}",
        "listen: localhost:80\nadmin: {listen: '[::1]:80'}",
        f"listen: 0.0.0.0:80\nkeys: [{{name: a, sha256: '{SHA}', scopes: [passthrough]}}]",
        "chains: {c: [{use: prompt_enhancer, with: {tools: false}}], d: [{use: prompt_enhancer}, {use: agent_loop}]}",
        "chains: {c: [{use: prompt_enhancer, with: {tools: false}}, {use: agent_loop, with: {tool_format: native}}]}",
        "upstreams: [{name: a, base_url: 'http://a', tls: {}}, {name: A, base_url: 'http://a', tls: , paths: [/A/]}]",
        f"keys: [{{name: a, sha256: '{SHA}', scopes: [passthrough]}}]\n" + TWO,
    ],
)
def test_consistent_settings_load_without_warnings(folder: Folder, text: str) -> None:
    """The rules refuse nothing that works."""
    assert folder.load(text).warnings == ()


def test_all_configuration_problems_are_reported_at_once(folder: Folder) -> None:
    """Wrong values, unknown keys, what does not fit, an unset variable, a variable, a flag: one answer, in order."""
    text = (
        "upstreams:\n"
        "  - {name: a, base_url: 'ftp://a', api_key: '${NOPE}'}\n"
        "  - {name: a, base_url: 'http://a', modles: [x]}\n"
        "context: {chain: nope}\n"
        "prompts: {p: {}}\n"
        "prompts: {q: {}}\n"
    )
    problems = folder.problems(text, {"GATEWAY__LIMITS__HEAD": "1KB"}, workers=0)
    assert [problem.partition(": ")[0] for problem in problems] == [
        "gateway.yaml:2:25 upstreams[0].base_url",
        "gateway.yaml:2:45 upstreams[0].api_key",
        "gateway.yaml:3:12 upstreams[1].name",
        "gateway.yaml:3:37 upstreams[1].modles",
        "gateway.yaml:4:18 context.chain",
        "gateway.yaml:5:14 prompts.p",
        "gateway.yaml:6:1 prompts",
        "--workers",
        "GATEWAY__LIMITS__HEAD",
    ]


def test_unreadable_value_causes_no_follow_up_problems(folder: Folder) -> None:
    """An unset variable is one problem, not also an undeclared name or a missing key."""
    text = (
        "upstreams: [{name: '${NOPE}', base_url: 'http://a'}]\ncontext: {upstream: a}\nprompts: {p: {text: '${NADA}'}}"
    )
    assert ["NOPE" in folder.problems(text)[0], "NADA" in folder.problems(text)[1]] == [True, True]
    assert len(folder.problems(text)) == 2


def test_keys_of_other_programs_in_an_mcp_block_are_ignored_with_a_warning(folder: Folder) -> None:
    """A pasted `mcpServers` block works; a server that was switched off there is off, unless it says otherwise here."""
    loaded = folder.load(
        "mcp:\n  servers:\n"
        '    time: {"command": "uvx", "args": ["x"], "env": {"A": "b"}, "type": "stdio", "autoApprove": ["y"]}\n'
        "    docs: {url: 'https://d', disabled: true, timeout: 60, cwd: /}\n"
    )
    assert loaded.warnings == (
        "gateway.yaml:3:64 mcp.servers.time.type: ignored: a key of another program",
        "gateway.yaml:3:81 mcp.servers.time.autoApprove: ignored: a key of another program",
        "gateway.yaml:4:30 mcp.servers.docs.disabled: a key of another program: taken for enabled: false",
        "gateway.yaml:4:59 mcp.servers.docs.cwd: has no effect without command",
    )
    assert loaded.settings.mcp.servers["docs"].timeout == 60.0
    assert [server.enabled for server in loaded.settings.mcp.servers.values()] == [True, False]
    both = folder.load("mcp: {servers: {a: {command: x, disabled: true, enabled: true}}}")
    assert both.settings.mcp.servers["a"].enabled and "ignored" in both.warnings[0]
    assert "unknown key 'tiemout'" in folder.problem("mcp: {servers: {a: {command: x, tiemout: 5}}}")


def test_keys_of_the_other_kind_of_mcp_server_are_a_warning(folder: Folder) -> None:
    """What is said of an address means nothing for a program, and the other way round; empty lists are no word."""
    loaded = folder.load(
        "mcp: {servers: {a: {command: x, headers: {X-A: b}, private_networks: true, args: []}, "
        "b: {url: 'http://b', env: {A: b}, args: []}}}"
    )
    assert [warning.partition(" ")[2] for warning in loaded.warnings] == [
        "mcp.servers.a.headers: has no effect without url",
        "mcp.servers.a.private_networks: has no effect without url",
        "mcp.servers.b.env: has no effect without command",
    ]


def test_auth_header_without_api_key_warns(folder: Folder) -> None:
    """`auth_header` says where a key goes that is not there."""
    text = "upstreams: [{name: a, base_url: 'http://a', auth_header: X-Key}]"
    assert folder.load(text).warnings == ("gateway.yaml:1:45 upstreams[0].auth_header: has no effect without api_key",)
    assert folder.load(text.replace("}]", ", api_key: k}]")).warnings == ()


def test_risk_rules_for_unknown_tools_are_refused(folder: Folder) -> None:
    """A slip of the pen would leave a tool without its rule; globs, services and plugins' tools may name more."""
    for section in ("rules: {execute_comand: deny}", "assessors: {execute_comand: {use: command}}"):
        assert "there is no tool 'execute_comand'" in folder.problem(f"risk: {{{section}}}")
    assert "an assessor judges one tool" in folder.problem("risk: {assessors: {'exec*': {use: command}}}")
    folder.load("risk: {rules: {execute_command: deny, 'exec*': deny, time.now: confirm, read_result: floor}}")
