"""Text of strangers taints a conversation, also after a restart."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from e2e.asking import born, ranch
from gateways import until

from tests.support.gateway_process import GATEWAY, GatewayProcess

from .effects import Json, effects, settings
from .looking import dog, line, pending, run_ids, until_state
from .talk import CHAT, asking, post, session_with


async def said(gateway: GatewayProcess, *turns: str) -> Json:
    """The answer to the last of these turns of one conversation; the client sends each answer back."""
    messages: list[Json] = []
    async with session_with(gateway) as session:
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            status, answer = await post(session, CHAT, {"model": "demo", "messages": messages})
            assert status == 200, answer
            messages.append(answer["choices"][0]["message"])
    return answer


def tainting(folder: Path, **sections: object) -> Json:
    """The model's low counts until strangers have written something; what the ledger says is a stranger's."""
    config = settings(folder, **sections)
    config["risk"]["trust_llm"] = "until_tainted"
    config["tools"] |= ranch(folder)
    config["tools"]["ledger"]["untrusted"] = True
    return config


async def test_untrusted_text_taints_the_next_turn_even_after_restart(tmp_path: Path) -> None:
    """The model calls a deletion low in risk: before it read the stranger's text that counts, behind it it does not."""
    low = f"risk_level low {dog('Di')}"
    async with GatewayProcess(json.dumps(tainting(tmp_path))) as gateway:
        first = await said(gateway, low)
        assert "approvals" not in first.get("context", {}) and born(tmp_path) == ["Di"]
        behind = await said(gateway, line("r", n=1), low)
        assert [one["tool"] for one in behind["context"]["approvals"]] == ["execute_sql"]
        messages = [
            {"role": "user", "content": line("s", n=1)},
            (await said(gateway, line("s", n=1)))["choices"][0]["message"],
            {"role": "user", "content": low},
        ]
        await gateway.kill()
        await gateway.start()
        async with session_with(gateway) as session:
            status, after = await post(session, CHAT, {"model": "demo", "messages": messages})
        assert status == 200 and [one["tool"] for one in after["context"]["approvals"]] == ["execute_sql"]
    assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("trusted", [False, pytest.param(True, marks=pytest.mark.crash)])
async def test_result_reported_on_resume_taints_unless_marked_trusted(tmp_path: Path, *, trusted: bool) -> None:
    """Killed in a call; what `resume --result` brings taints the call behind it, unless it is said to be trusted."""
    config = tainting(tmp_path)
    del config["tools"]["ledger"]["untrusted"]
    config["tools"]["ledger"]["with"]["after_s"] = 60.0
    async with GatewayProcess(json.dumps(config)) as gateway:
        async with session_with(gateway) as session:
            text = f"risk_level low {line('r')} {dog('Di')}"
            talk = asyncio.create_task(post(session, CHAT, asking(text)))
            await until(lambda: effects(tmp_path))
            await gateway.kill()
            with pytest.raises(aiohttp.ClientError):
                await talk
        await gateway.start()
        await until_state(tmp_path, "r", "unknown")
        finding = ("runs", "resume", run_ids(tmp_path, "r"), "--step", "0", "--as", "done", "--result", "It is there.")
        command = (*GATEWAY, *finding, *(["--trusted"] if trusted else []), "--url", gateway.base_url)
        resuming = await asyncio.create_subprocess_exec(*command)
        assert await resuming.wait() == 0
        await until_state(tmp_path, "r", *(["completed"] if trusted else ["awaiting_approval"]))
        assert [one["tool"] for one in await pending(gateway)] == ([] if trusted else ["execute_sql"])
    assert born(tmp_path) == (["Di"] if trusted else []) and len(effects(tmp_path)) == 1
