"""The machine under a gateway: files, disk, address, keys that end."""

import asyncio
import os
import resource
import time
from pathlib import Path

from gateway.cli.doctor.findings import Finding
from gateway.cli.doctor.machine import examine_machine
from gateway.config import load
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.cli.doctor.examined import loaded
from tests.functional.through import through

SHA = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"


def found(text: str, *, folder: Path) -> dict[str, Finding]:
    return {one.about: one for one in examine_machine(loaded(text, folder=folder), now_s=time.time())}


def test_doctor_finds_nothing_to_fix_on_a_new_machine(tmp_path: Path) -> None:
    """The versions are there for a report; the store is not made."""
    said = found("limits: {connections: 10}", folder=tmp_path)
    assert said.pop("user").level == ("ok" if os.geteuid() else "warn")
    assert {one.level for one in said.values()} == {"ok"}
    assert said["versions"].text.startswith("twolane ") and "SQLite" in said["versions"].text
    assert "not made yet" in said["store gateway.db"].text and not (tmp_path / "gateway.db").exists()


def test_doctor_warns_about_a_low_open_file_limit(tmp_path: Path) -> None:
    """By more connections: a lower limit would outlive the test."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    said = found(f"limits: {{connections: {min(hard, 1_000_000)}}}", folder=tmp_path)["open files"]
    assert said.level == "warn" and "limits.connections" in said.text and said.advice is not None


def test_doctor_fails_expired_keys_only(tmp_path: Path) -> None:
    keys = ", ".join(
        f'{{name: {name}, sha256: "{SHA[:-1]}{n}", scopes: [context], expires: "{end}"}}'
        for n, (name, end) in enumerate((("old", "2020-01-01T00:00:00Z"), ("later", "2999-01-01T00:00:00Z")))
    )
    said = found(f"keys: [{keys}]", folder=tmp_path)
    assert said["key old"].level == "fail" and "key later" not in said


async def test_doctor_distinguishes_a_gateway_from_another_listener(tmp_path: Path) -> None:
    """A gateway, or something else."""
    async with through() as (gateway, _), FakeUpstream(serve(build_answer(404, b"no"))) as other:
        for port, level, text in ((gateway.port, "ok", "a gateway answers"), (other.port, "fail", "something else")):
            file = tmp_path / "gateway.yaml"
            file.write_text(f"listen: 127.0.0.1:{port}\n")
            configuration = load(file, environ={}, flags={})
            said = await asyncio.to_thread(lambda: [*examine_machine(configuration, now_s=0.0)])  # noqa: B023
            (one,) = (finding for finding in said if finding.about.startswith("address"))
            assert one.level == level and one.text.startswith(text)
