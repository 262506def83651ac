"""The protocol's own suite for servers, `@modelcontextprotocol/conformance`, against a gateway that serves MCP clients.

The tools, prompts and resources that it asks for are those of a server behind the gateway, on whose path they have
their own names. The gateway asks for input only where a person must decide; what the suite asks of other servers is
listed with the reason.
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from gateways import until_read

from tests.mcp_server.conftest import CALM
from tests.mcp_servers.conforming import HEADER, TOOLS
from tests.mcp_servers.servers import ROOT
from tests.mcp_servers.suite import BOTH, HANDSHAKE, MODERN, SUITE, scenarios_of
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.mcp_servers

_WAIT: Final = "1s"


#: Scenarios, and the revisions at which every check of them passes.
RUN: Final = {
    "server-initialize": (HANDSHAKE,),
    "server-session-lifecycle": (HANDSHAKE,),
    "ping": (HANDSHAKE,),
    "tools-list": BOTH,
    "tools-call-simple-text": BOTH,
    "tools-call-image": BOTH,
    "tools-call-audio": BOTH,
    "tools-call-embedded-resource": BOTH,
    "tools-call-mixed-content": BOTH,
    "tools-call-error": BOTH,
    "tools-call-with-progress": BOTH,
    "json-schema-2020-12": BOTH,
    "server-sse-multiple-streams": BOTH,
    "resources-list": BOTH,
    "resources-read-text": BOTH,
    "resources-read-binary": BOTH,
    "resources-templates-read": BOTH,
    "sep-2164-resource-not-found": (MODERN,),
    "prompts-list": BOTH,
    "prompts-get-simple": BOTH,
    "prompts-get-with-args": BOTH,
    "prompts-get-embedded-resource": BOTH,
    "prompts-get-with-image": BOTH,
    "dns-rebinding-protection": BOTH,
    "caching": (MODERN,),
    "http-header-validation": (MODERN,),
    "http-custom-header-server-validation": (MODERN,),
    "server-stateless": (MODERN,),
    "input-required-result-request-state": (MODERN,),
    "input-required-result-tampered-state": (MODERN,),
    "input-required-result-result-type": (MODERN,),
    "input-required-result-missing-input-response": (MODERN,),
    "input-required-result-unsupported-methods": (MODERN,),
    "input-required-result-ignore-extra-params": (MODERN,),
    "input-required-result-validate-input": (MODERN,),
}

#: Checks within them that need a tool that asks for other things, logs, or changes the lists.
EXCUSED: Final = {
    "server-stateless": (
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
        "sep-2575-http-server-no-independent-requests-on-stream",
        "sep-2575-server-no-log-without-loglevel",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    ),
}

#: Scenarios of which no check is about a gateway, by reason.
NOT_RUN: Final = {
    "log messages to clients, which the protocol has deprecated": ("logging-set-level", "tools-call-with-logging"),
    "completion of arguments, which is not passed on": ("completion-complete",),
    "subscriptions to single resources, which are not passed on": ("resources-subscribe", "resources-unsubscribe"),
    "streams that are resumed: a call that was lost is called again, and joins its run": ("server-sse-polling",),
    "questions of a server to the client of the gateway, which are not passed on": (
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "input-required-result-basic-elicitation",
        "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots",
        "input-required-result-multiple-input-requests",
        "input-required-result-multi-round",
        "input-required-result-non-tool-request",
        "input-required-result-capability-check",
    ),
    "skills": ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"),
    "tasks, an extension": (
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-status-notifications",
        "tasks-required-task-error",
        "tasks-mrtr-composition",
    ),
}


def test_every_server_scenario_is_run_or_excluded_with_a_reason() -> None:
    """A new version of the suite brings nothing that goes unseen."""
    assert sorted(scenarios_of("server")) == sorted([*RUN, *(name for names in NOT_RUN.values() for name in names)])


def config(folder: Path) -> str:
    """A gateway whose calls of the suite's tools run unasked, but for those that ask for input."""
    assessor = folder / "plugins" / "assessors" / "calm.py"
    assessor.parent.mkdir(parents=True, mode=0o700)
    assessor.write_text(CALM)
    assessor.chmod(0o600)
    command = {"command": sys.executable, "args": ["-m", "tests.mcp_servers.conforming"], "cwd": str(ROOT)}
    calm = (*TOOLS, HEADER, "json_schema_2020_12_tool")
    return json.dumps(
        {
            "mcp": {"servers": {"suite": {**command, "start_timeout": 60}}, "serve": {"wait": _WAIT}},
            "risk": {"trust_llm": "never", "assessors": {f"suite.{tool}": {"use": "calm"} for tool in calm}},
            "plugins": {"folder": str(folder / "plugins")},
        }
    )


async def test_gateway_passes_the_server_conformance_scenarios(tmp_path: Path) -> None:
    """Every check of each scenario passes, but for those that are excused, which do not."""
    excused = tmp_path / "excused.yaml"
    excused.write_text(json.dumps({"server": [f"{name}:{one}" for name, checks in EXCUSED.items() for one in checks]}))
    failed = {}
    async with GatewayProcess(config(tmp_path)) as gateway:
        async with aiohttp.ClientSession(gateway.base_url) as session:

            async def is_running() -> bool:
                async with session.get("/mcp/services/suite") as response:
                    return bool((await response.json())["state"] == "running")

            await until_read(is_running)
        for scenario, revisions in RUN.items():
            for revision in revisions:
                options = ("--scenario", scenario, "--spec-version", revision)
                if scenario in EXCUSED:
                    options += ("--expected-failures", str(excused))
                process = await asyncio.create_subprocess_exec(
                    *(*SUITE, "server", "--url", f"{gateway.base_url}/mcp/suite", *options),
                    cwd=tmp_path,
                    env={"PATH": os.environ["PATH"]},
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
                told = (await process.communicate())[0].decode()
                if process.returncode != 0 or not re.search(r"[1-9][0-9]* passed|^Passed: [1-9]", told, re.MULTILINE):
                    failed[scenario, revision] = told[-2000:]
    assert failed == {}
