"""Plugins of the operator's own, in a folder beside the configuration of a real gateway."""

import json
import signal
from pathlib import Path

import pytest
from functional.through import post
from gateways import ended, exchange, until

from gateway.cli.plugin_new import NewKind, write_plugin
from gateway.testing.raw_connection import connect
from tests.support.gateway_process import GatewayProcess

OWN: dict[NewKind, str] = {"stages": "polite", "tools": "count_words", "assessors": "short_texts"}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, object]:
    """A configuration that uses one plugin of each kind, and the plugins, none of which Python can find by itself."""
    for kind, name in OWN.items():
        write_plugin(kind, name, folder=tmp_path / "plugins")
    return {
        "plugins": {"folder": str(tmp_path / "plugins")},
        "store": f"sqlite:///{tmp_path}/gateway.db",
        "chains": {"assistant": [{"use": name} for name in ("polite", "prompt_enhancer", "agent_loop")]},
        "tools": {"count_words": {}},
        "risk": {"trust_llm": "never", "assessors": {"count_words": {"use": "short_texts"}}},
    }


async def test_gateway_runs_with_operator_plugins(settings: dict[str, object]) -> None:
    """The stage speaks in the prompt, the assessor lets the call run, the tool runs."""
    async with GatewayProcess(json.dumps(settings)) as gateway, connect(gateway.host, gateway.port) as client:
        body = {"model": "demo", "messages": [{"role": "user", "content": 'tool count_words {"text": "a b c"}'}]}
        request = post(json.dumps(body).encode(), b"/context/v1/chat/completions")
        answer = await exchange(client, request.replace(b"gw.example", b"localhost"))
        assert "The result: 3" in json.loads(answer.payload)["choices"][0]["message"]["content"]
        request = post(json.dumps(body).encode(), b"/context/explain")
        shown = await exchange(client, request.replace(b"gw.example", b"localhost"))
        assert "Answer in one sentence." in json.loads(shown.payload)["messages"][0]["content"]


@pytest.mark.parametrize("command", ["run", "check-config"])
async def test_plugin_file_writable_by_others_prevents_the_start(
    settings: dict[str, object], command: str, tmp_path: Path
) -> None:
    """T31: a file that others could have written stops the start; its code is not run."""
    file, mark = tmp_path / "plugins/tools/count_words.py", tmp_path / "ran"
    file.write_text(f"open({str(mark)!r}, 'w')\n" + file.read_text())
    file.chmod(0o666)
    config = tmp_path / "gateway.yaml"
    config.write_text(json.dumps({**settings, "listen": "127.0.0.1:0"}))
    code, out, err = await ended(command, "-c", str(config))
    assert (code, out) == (1, "")
    assert f"tools.count_words: plugin 'count_words': '{file}' can be written by others than its owner" in err
    assert not mark.exists()


_CALLS = {"stages": "async def __call__(", "tools": "async def call(", "assessors": "def assess("}


@pytest.mark.parametrize("kind", list(_CALLS))
@pytest.mark.parametrize("leaves", ["raise SystemExit(3)", "raise KeyboardInterrupt", "raise BaseException"])
async def test_sys_exit_in_a_plugin_does_not_end_the_gateway(
    settings: dict[str, object], tmp_path: Path, kind: NewKind, leaves: str
) -> None:
    """`sys.exit` in one is its failure: the request is answered, and so is the next one."""
    file = tmp_path / "plugins" / kind / f"{OWN[kind]}.py"
    before, signature, after = file.read_text().partition(_CALLS[kind])
    arguments, colon, body = after.partition(":\n")
    file.write_text(f"{before}{signature}{arguments}{colon}        {leaves}\n{body}")
    async with GatewayProcess(json.dumps(settings)) as gateway, connect(gateway.host, gateway.port) as client:
        body_ = {"model": "demo", "messages": [{"role": "user", "content": 'tool count_words {"text": "a b c"}'}]}
        request = post(json.dumps(body_).encode(), b"/context/v1/chat/completions")
        for _ in range(2):
            answered = await exchange(client, request.replace(b"gw.example", b"localhost"))
            shown = json.loads(answered.payload)
            if kind == "stages":
                assert shown["error"]["code"] == "internal_error"
            else:
                expected = "failed" if kind == "tools" else "waits for your approval"
                assert expected in shown["choices"][0]["message"]["content"]


@pytest.mark.parametrize("above", [True, False], ids=["above", "below"])
async def test_stage_that_ignores_cancellation_does_not_block_shutdown(tmp_path: Path, *, above: bool) -> None:
    """Its client hears that the gateway stops, and the log names the place. All else ends in its order."""
    write_plugin("stages", "stubborn", folder=tmp_path / "plugins")
    file = tmp_path / "plugins/stages/stubborn.py"
    before, signature, after = file.read_text().partition(_CALLS["stages"])
    arguments, colon, body = after.partition(":\n")
    loop = [
        "open(MARK, 'w').close()",
        "while True:",
        "    try:",
        "        await asyncio.sleep(60)",
        "    except BaseException:",
        "        pass",
    ]
    lines = "".join(f"        {line}\n" for line in loop)
    soon = "live_run.ENDS_S, worker.CLOSES_S = 0.1, 2.0"
    modules = "import asyncio\n\nfrom gateway.runs import live_run\nfrom gateway.server import worker"
    imports = f"{modules}\n\n{soon}\nMARK = {str(tmp_path / 'there')!r}\n"
    head, blank, rest = before.partition("\n\n")
    file.write_text(f"{head}{blank}{imports}{rest}{signature}{arguments}{colon}{lines}{body}")
    chain = ["stubborn", "agent_loop"] if above else ["agent_loop", "stubborn"]
    settings = {
        "plugins": {"folder": str(tmp_path / "plugins")},
        "store": f"sqlite:///{tmp_path}/gateway.db",
        "chains": {"assistant": [{"use": name} for name in chain]},
        "limits": {"drain": "0s"},
    }
    async with GatewayProcess(json.dumps(settings)) as gateway, connect(gateway.host, gateway.port) as client:
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        await client.send(post(body, b"/context/v1/chat/completions").replace(b"gw.example", b"localhost"))
        await until((tmp_path / "there").exists)
        gateway.signal(signal.SIGTERM)
        answer = await client.read_response()
        assert (answer.status, json.loads(answer.payload)["error"]["code"]) == (503, "gateway_stopping")
        assert await gateway.wait() == 1  # by force, as its docs say
        assert "was cancelled and goes on, in NoteStage.__call__" in gateway.read_stderr()
