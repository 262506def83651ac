"""The files of deploy/, as several tests read them, and the tools that check them."""

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Settings, load

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
CONTAINER_CONFIG = DEPLOY / "gateway.container.yaml"
#: What `make test-deploy` installs from requirements/deploy.txt.
TOOLS = REPOSITORY / ".venv-deploy" / "bin"
#: What the container's configuration needs from its environment.
ENVIRON = {"GATEWAY_KEY_SHA256": hashlib.sha256(b"gw-test").hexdigest(), "OPENAI_API_KEY": "sk-test"}


def settings(**changes: str) -> Settings:
    """Return the container's configuration, with the variables it needs."""
    return load(CONTAINER_CONFIG, environ=ENVIRON | changes, flags={}).settings


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions and what follows them, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def last(instruction: str) -> str:
    """Return the last such instruction, which holds in the final image."""
    return [rest for word, rest in dockerfile() if word == instruction][-1]


def compose(name: str) -> dict[str, dict[str, Any]]:
    """Return the services of a compose file."""
    found = yaml.safe_load((DEPLOY / name).read_text())["services"]
    assert isinstance(found, dict)
    return found


def scrape_targets(name: str) -> list[str]:
    """Return what a configuration of Prometheus scrapes."""
    jobs = yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["scrape_configs"]
    return [target for job in jobs for static in job["static_configs"] for target in static["targets"]]
