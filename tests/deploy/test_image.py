"""The container image: what it is built from, and how it starts, is checked and stops."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from .files import DEPLOY, REPOSITORY, TOOLS, dockerfile, last, settings


def copied() -> list[str]:
    """Return the files that the final image takes from the repository."""
    final = dockerfile()[[word for word, _ in dockerfile()].index("FROM", 2) :]
    copies = [rest.split() for word, rest in final if word == "COPY"]
    return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]


def steps() -> list[str]:
    return [rest for word, rest in dockerfile() if word == "RUN"]


def pinned(requirements: Path) -> set[str]:
    """Names and versions, without markers and hashes."""
    return {line.split()[0] for line in requirements.read_text().splitlines() if "==" in line.partition(" ")[0]}


def test_the_image_runs_as_a_user_without_a_name_or_rights() -> None:
    """The final image's user is a number other than root's, which Kubernetes' runAsNonRoot can check."""
    user, group = last("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_build_context_admits_existing_files_and_no_private_ones() -> None:
    """.dockerignore starts from nothing, so that keys, state and history never reach an image."""
    patterns = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert patterns[0] == "*"
    admitted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    assert [name for name in admitted if not (REPOSITORY / name).exists()] == []
    # What the wheel is built from (pyproject.toml), how, and what the image takes as it is.
    needed = {"pyproject.toml", "README.md", "LICENSE", "gateway/", "plugins/", "gateway.yaml", "gateway.schema.json"}
    assert set(admitted) == {*needed, "requirements/", "deploy/release/", *copied()}
    private = [".git", ".venv", ".env", "gateway.db", "tests"]
    assert [name for name in private for pattern in admitted if fnmatch(name, pattern.rstrip("/"))] == []


def test_the_image_installs_pinned_wheels_and_leaves_no_installer() -> None:
    """Nothing is compiled, nothing without a known hash is fetched, and pip is gone from the final image."""
    tools, build, cleanup = steps()
    assert "--require-hashes -r requirements/release.txt" in tools
    assert "PIP_ONLY_BINARY=:all:" in next(rest for word, rest in dockerfile() if word == "ENV")
    # sbom.py installs with --require-hashes what it describes.
    assert re.search(r"for list in base \$\{EXTRAS\}; do cat .* >twolane\.txt .*sbom\.py dist /opt twolane\.txt", build)
    assert '"--require-hashes"' in (DEPLOY / "release" / "sbom.py").read_text()
    assert "pip uninstall --yes pip" in cleanup


def test_image_extras_are_pinned_lists_that_fit_together() -> None:
    """Each adds to the base, in the versions that were tested, so that any of them can be combined."""
    [extras] = [rest for word, rest in dockerfile() if word == "ARG" and rest.startswith("EXTRAS=")]
    assert extras == 'EXTRAS="mcp postgres valkey"'
    base, tested = (pinned(REPOSITORY / f"requirements/{name}.txt") for name in ("base", "dev"))
    brought = {"mcp": "mcp==", "postgres": "asyncpg==", "valkey": "valkey==", "tracing": "opentelemetry-sdk=="}
    for extra, brings in brought.items():
        found = pinned(REPOSITORY / f"requirements/{extra}.txt")
        assert base <= found <= tested, extra
        assert any(line.startswith(brings) for line in found - base), extra


def test_image_contains_its_bill_of_materials_and_licences() -> None:
    copies = [rest.split()[-1] for word, rest in dockerfile() if word == "COPY" and "--from=build" in rest]
    assert copies[1:] == ["/usr/share/doc/twolane/sbom.cdx.json", "/usr/share/doc/twolane/licences.txt"]


def test_image_stop_signal_is_sigterm() -> None:
    """The engine sends the signal on which the gateway finishes what is under way."""
    assert last("STOPSIGNAL") == "SIGTERM"
    assert last("EXPOSE") == str(settings().listen.port)


def test_health_check_uses_the_configuration_of_the_started_gateway() -> None:
    """The health check is a command of the gateway, and reads the same configuration as the server."""
    check = yaml.safe_load(last("HEALTHCHECK").partition("CMD ")[2])
    assert check[:2] == [*yaml.safe_load(last("ENTRYPOINT")), "healthcheck"]
    assert yaml.safe_load(last("CMD")) == ["run", *check[2:]]
    [destination] = [rest.split()[1] for word, rest in dockerfile() if rest.startswith("deploy/gateway.container.yaml")]
    assert check[2:] == ["-c", destination]


def test_the_health_check_fails_where_nothing_listens(unused_tcp_port: int) -> None:
    """Run as the image runs it, without a gateway, the command exits 1."""
    command = [sys.executable, "-m", "gateway", "healthcheck", "--url", f"http://127.0.0.1:{unused_tcp_port}"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert str(unused_tcp_port) in ended.stderr


@pytest.mark.deploy
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run([TOOLS / "hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
