"""The files of deploy/ agree with each other, with the repository and with the gateway."""

import hashlib
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from gateway.config import ConfigError, Settings, load

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
CONTAINER_CONFIG = DEPLOY / "gateway.container.yaml"
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


def settings(**changes: str) -> Settings:
    """The container's configuration, with the variables it needs."""
    environ = {"GATEWAY_KEY_SHA256": hashlib.sha256(b"gw-test").hexdigest(), "OPENAI_API_KEY": "sk-test"}
    return load(CONTAINER_CONFIG, environ=environ | changes, flags={}).settings


def dockerfile() -> list[tuple[str, str]]:
    """The instructions and what follows them, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def last(instruction: str) -> str:
    """Return the last such instruction, which holds in the final image."""
    return [rest for word, rest in dockerfile() if word == instruction][-1]


def copied() -> list[str]:
    """Return the files that the image takes from the repository."""
    copies = [rest.split() for word, rest in dockerfile() if word == "COPY"]
    return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]


def unit() -> dict[str, list[str]]:
    """The settings of gateway.service; some stand more than once."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "gateway.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def services() -> dict[str, dict[str, object]]:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert isinstance(found, dict)
    return found


def scrape_targets() -> list[str]:
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text())["scrape_configs"]
    return [target for job in jobs for static in job["static_configs"] for target in static["targets"]]


def test_the_image_runs_as_a_user_without_a_name_or_rights() -> None:
    """The final image's user is a number other than root's, which Kubernetes' runAsNonRoot can check."""
    user, group = last("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_image_copies_only_existing_sources_and_all_needed_ones() -> None:
    """Every COPY source exists, and the package, the plugins and both configurations are among them."""
    sources = copied()
    assert [source for source in sources if not (REPOSITORY / source).exists()] == []
    requirements = {"requirements/base.txt", "requirements/mcp.txt", "requirements/tracing.txt"}
    needed = {*requirements, "gateway/", "plugins/", "gateway.yaml", "deploy/gateway.container.yaml"}
    assert needed <= set(sources)


def test_build_context_holds_only_copied_and_no_private_files() -> None:
    """.dockerignore starts from nothing, so that keys, state and history never reach an image."""
    patterns = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert patterns[0] == "*"
    admitted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    assert sorted(admitted) == sorted(copied())
    private = [".git", ".venv", ".env", "gateway.db", "tests"]
    assert [name for name in private for pattern in admitted if fnmatch(name, pattern.rstrip("/"))] == []


def test_the_image_installs_pinned_wheels_and_leaves_no_installer() -> None:
    """Nothing is compiled, nothing without a known hash is fetched, and pip is gone afterwards."""
    steps = [rest for word, rest in dockerfile() if word == "RUN"]
    [install] = [step for step in steps if "install" in step and "REQUIREMENTS" in step]
    assert "--require-hashes" in install
    assert ("ARG", "REQUIREMENTS=requirements/mcp.txt") in dockerfile()
    assert "--only-binary :all:" in install
    assert any("pip uninstall --yes pip" in step for step in steps[steps.index(install) + 1 :])


def test_image_requirements_add_mcp_to_the_pinned_base() -> None:
    """In the same versions, so that what was tested is what runs."""
    plain, image = (pinned(REPOSITORY / name) for name in ("requirements/base.txt", "requirements/mcp.txt"))
    assert plain <= image <= pinned(REPOSITORY / "requirements/dev.txt")
    assert any(line.startswith("mcp==") for line in image - plain)


def test_tracing_image_adds_only_the_tracing_libraries() -> None:
    """`--build-arg REQUIREMENTS=requirements/tracing.txt` adds the libraries for traces, and changes no other."""
    image, larger = (pinned(REPOSITORY / f"requirements/{name}.txt") for name in ("mcp", "tracing"))
    assert image <= larger <= pinned(REPOSITORY / "requirements/dev.txt")
    assert any(line.startswith("opentelemetry-sdk==") for line in larger - image)


def pinned(requirements: Path) -> set[str]:
    """Names and versions, without markers and hashes."""
    return {line.split()[0] for line in requirements.read_text().splitlines() if "==" in line.partition(" ")[0]}


def test_image_stop_signal_is_sigterm() -> None:
    """The engine sends the signal on which the gateway finishes what is under way."""
    assert last("STOPSIGNAL") == "SIGTERM"


def test_health_check_uses_the_configuration_of_the_started_gateway() -> None:
    """The health check is a command of the gateway, and reads the same configuration as the server."""
    check = yaml.safe_load(last("HEALTHCHECK").partition("CMD ")[2])
    assert check[:4] == [*yaml.safe_load(last("ENTRYPOINT")), "healthcheck"]
    assert yaml.safe_load(last("CMD")) == ["run", *check[4:]]
    [destination] = [rest.split()[1] for word, rest in dockerfile() if rest.startswith("deploy/gateway.container.yaml")]
    assert check[4:] == ["-c", destination]


def test_the_health_check_fails_where_nothing_listens(unused_tcp_port: int) -> None:
    """Run as the image runs it, with nobody there, the command exits 1."""
    command = [sys.executable, "-m", "gateway", "healthcheck", "--url", f"http://127.0.0.1:{unused_tcp_port}"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert str(unused_tcp_port) in ended.stderr


def test_the_container_listens_to_the_network_with_a_key() -> None:
    """The container's configuration is good: a key from the environment, and our own upstream credential."""
    found = settings()
    assert found.listen.host == "0.0.0.0"
    assert [key.sha256 for key in found.keys] == [hashlib.sha256(b"gw-test").hexdigest()]
    assert found.upstreams[0].api_key is not None
    assert found.upstreams[0].base_url == "https://api.openai.com/v1"
    assert settings(OPENAI_BASE_URL="http://model:8000/v1").upstreams[0].base_url == "http://model:8000/v1"


@pytest.mark.parametrize("missing", ["GATEWAY_KEY_SHA256", "OPENAI_API_KEY"])
def test_the_container_refuses_to_start_without_its_keys(missing: str) -> None:
    """A variable that is not set is named, with what it is for."""
    environ = {"GATEWAY_KEY_SHA256": "0" * 64, "OPENAI_API_KEY": "sk-test"}
    del environ[missing]
    with pytest.raises(ConfigError, match=rf"{missing} is not set: the .*key that"):
        load(CONTAINER_CONFIG, environ=environ, flags={})


def test_container_keeps_its_state_in_the_writable_volume() -> None:
    """Store, working folder, the folder that the image gives to the user, and compose's volume are one."""
    folder = last("WORKDIR")
    assert settings().store.reveal() == f"sqlite:///{folder}/gateway.db"
    assert any(step.endswith(folder) for word, step in dockerfile() if word == "RUN")
    assert services()["gateway"]["volumes"] == [f"state:{folder}"]


def test_image_compose_and_prometheus_use_the_same_port() -> None:
    """The port that is listened on is the one exposed, published and scraped."""
    port = settings().listen.port
    assert last("EXPOSE") == str(port)
    assert services()["gateway"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert scrape_targets() == [f"gateway:{port}"]


def test_prometheus_scrape_host_is_allowed_by_the_gateway() -> None:
    """It asks by the service's name, which compose resolves and the gateway's Host check admits."""
    [host] = {target.partition(":")[0] for target in scrape_targets()}
    assert host in services()
    assert host in settings().allowed_hosts
    assert services()["prometheus"]["volumes"] == [
        "./prometheus/scrape.yml:/etc/prometheus/prometheus.yml:ro",
        "./prometheus/alerts.yml:/etc/prometheus/alerts.yml:ro",
        "metrics:/prometheus",
    ]


def test_compose_sets_the_variables_that_the_container_needs() -> None:
    """Every variable of the configuration is handed on, and a missing one stops compose with the same text."""
    pattern = r"\$\{(\w+)[^}]*\}"
    needed = set(re.findall(pattern, CONTAINER_CONFIG.read_text()))
    environment = services()["gateway"]["environment"]
    assert isinstance(environment, dict)
    assert set(environment) == needed
    for name, value in environment.items():
        assert value in CONTAINER_CONFIG.read_text(), name


@pytest.mark.parametrize("name", ["gateway", "prometheus"])
def test_compose_gives_no_privilege(name: str) -> None:
    """No capabilities, no way to gain them, no writable root, and nothing published beyond this machine."""
    service = services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    ports = service["ports"]
    assert isinstance(ports, list)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_stop_grace_periods_exceed_the_drain_time() -> None:
    """Neither compose nor systemd kills the gateway while it keeps its promise to open streams."""
    # Several workers get five seconds more from their parent.
    needed_s = settings().limits.drain + 5
    assert float(str(services()["gateway"]["stop_grace_period"]).removesuffix("s")) > needed_s
    assert float(unit()["TimeoutStopSec"][0]) > needed_s


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


def test_systemd_unit_contains_every_hardening_setting() -> None:
    """Each setting of the hardening stands in the unit, once."""
    found = unit()
    assert {name: found.get(name) for name in HARDENING} == {name: [value] for name, value in HARDENING.items()}
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged"]


def complaints(folder: Path) -> str:
    """Return systemd's complaints about the unit; where there is no systemd, the lines that are no setting at all."""
    text = (DEPLOY / "gateway.service").read_text()
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        line = re.compile(r"(\[(Unit|Service|Install)\]|[A-Z][A-Za-z]+=.*|#.*|)\Z")
        return "\n".join(bad for bad in text.splitlines() if not line.match(bad))
    file = folder / "gateway.service"
    file.write_text(text.replace(INSTALLED_GATEWAY, sys.executable))
    return subprocess.run([analyze, "verify", file], capture_output=True, text=True, timeout=60, check=False).stderr


def test_systemd_unit_has_only_known_settings(tmp_path: Path) -> None:
    """No unknown setting, no value it would ignore."""
    assert complaints(tmp_path) == ""


def test_the_guide_makes_a_key_that_the_gateway_knows() -> None:
    """The recipe of deploy/README.md yields a key and its SHA-256, as `keys` wants it."""
    recipe = re.findall(r"```sh\n(.*?)```", (DEPLOY / "README.md").read_text(), flags=re.DOTALL)[0]
    script = f'{recipe}\nprintf "%s %s" "$GATEWAY_API_KEY" "$GATEWAY_KEY_SHA256"'
    made = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=120, check=True).stdout
    key, sha256 = made.split(" ")
    assert hashlib.sha256(key.encode()).hexdigest() == sha256
    assert settings(GATEWAY_KEY_SHA256=sha256).keys[0].sha256 == sha256
