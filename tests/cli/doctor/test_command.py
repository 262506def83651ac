"""`gateway doctor` at a terminal: all findings, their sum, and the exit code."""

import json
import os
from pathlib import Path

import pytest
from unanswered_ports import refusing_port

from gateway.cli.main import main
from gateway.testing.ports import free_port


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _configure(text: str) -> None:
    Path("gateway.yaml").write_text(f"listen: 127.0.0.1:{free_port()}\nlimits: {{connections: 10}}\n{text}")


def test_doctor_exits_0_when_all_checks_pass(capsys: pytest.CaptureFixture[str]) -> None:
    _configure("")
    assert main(["doctor"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("ok    configuration           gateway.yaml\n") and said.err == ""
    assert said.out.endswith(f" ok, {0 if os.geteuid() else 1} to look at, 0 failed\n")


def test_doctor_exits_1_on_a_failed_check(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing_port() as port:
        _configure(f"upstreams: [{{name: up, base_url: 'http://127.0.0.1:{port}/v1'}}]")
        assert main(["doctor", "--json"]) == 1
    levels = [json.loads(line)["level"] for line in capsys.readouterr().out.splitlines()]
    assert levels.count("fail") == 1


def test_doctor_reports_configuration_errors_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    _configure("upstream: x")
    assert main(["doctor"]) == 1
    assert "unknown key 'upstream'" in capsys.readouterr().err


def test_doctor_reports_configuration_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    _configure("mcp: {servers: {kb: {command: no-such-program}}}")
    assert main(["doctor"]) == 1
    said = capsys.readouterr()
    assert "warn  configuration" in said.out and "fail  MCP kb" in said.out and said.err == ""
