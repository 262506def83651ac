"""The systemd unit, also by systemd's own tool."""

import subprocess
import sys
from pathlib import Path

import pytest

from .files import DEPLOY, settings

UNIT = DEPLOY / "gateway.service"
# Where systemd-analyze would miss the gateway, which is not installed here.
INSTALLED_GATEWAY = "/opt/twolane/bin/gateway"

HARDENING = {
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "DynamicUser": "yes",
    "LimitCORE": "0",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
}


def unit() -> dict[str, list[str]]:
    """The settings of gateway.service; some stand more than once."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_systemd_unit_starts_reloads_and_stops_the_gateway() -> None:
    """Ready when it says so, reload by SIGHUP, a first SIGTERM to the parent alone, back after a crash."""
    found = unit()
    assert found["Type"] == ["notify"]
    assert found["ExecStart"] == [f"{INSTALLED_GATEWAY} run -c /etc/gateway/gateway.yaml"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert found["KillMode"] == ["mixed"]
    assert found["Restart"] == ["on-failure"]
    # A client connection and its upstream connection each take a file.
    assert int(found["LimitNOFILE"][0]) >= 2 * settings().limits.connections
    # Several workers get five seconds more from their parent.
    assert float(found["TimeoutStopSec"][0]) > settings().limits.drain + 5


def test_systemd_unit_contains_every_hardening_setting() -> None:
    """Each setting of the hardening stands in the unit, once."""
    found = unit()
    assert {name: found.get(name) for name in HARDENING} == {name: [value] for name, value in HARDENING.items()}
    allowed, refused, again = found["SystemCallFilter"]
    assert (allowed, refused) == ("@system-service", "~@privileged")
    # What gateway/sandbox/landlock.py and the loss of capabilities behind it call.
    assert again.split() == [
        "capset",
        *(f"landlock_{each}" for each in ("create_ruleset", "add_rule", "restrict_self")),
    ]


@pytest.mark.deploy
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    """No unknown setting, no value it would ignore (Debian: apt-get install systemd)."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace(INSTALLED_GATEWAY, sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.deploy
def test_systemd_rates_the_exposure_of_the_unit_as_low() -> None:
    """By its own scale, from 0 to 10; without any hardening it says 9.6, UNSAFE."""
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", UNIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
