"""The two compose files: one gateway on a file, and two on PostgreSQL behind a balancer."""

import re
import subprocess

import pytest
import yaml

from .files import CONTAINER_CONFIG, DEPLOY, TOOLS, compose, last, scrape_targets, settings

FILES = ("compose.yaml", "compose.single.yaml")
SERVICES = [(file, name) for file in FILES for name in compose(file)]


def gateways(file: str) -> dict[str, dict[str, object]]:
    return {name: service for name, service in compose(file).items() if name.startswith("gateway")}


def test_a_single_gateway_keeps_its_state_in_the_writable_volume() -> None:
    """Store, working folder, the folder that the image gives to the user, and compose's volume are one."""
    folder = last("WORKDIR")
    assert settings().store.reveal() == f"sqlite:///{folder}/gateway.db"
    assert f"--mode 0700 {folder}" in last("RUN")
    assert compose("compose.single.yaml")["gateway"]["volumes"] == [f"state:{folder}"]


def test_replicas_share_the_database_that_compose_starts() -> None:
    """The same settings for each, and the URL of the store is that of the service with its user, password and name."""
    a, b = gateways("compose.yaml").values()
    assert a == b
    url = str(a["environment"]["GATEWAY_STORE"])  # type: ignore[index]
    server = compose("compose.yaml")["postgres"]["environment"]
    user, name, password = (server[f"POSTGRES_{each}"] for each in ("USER", "DB", "PASSWORD"))
    assert url == f"postgresql://{user}:{password}@postgres/{name}"
    found = settings(GATEWAY_STORE=re.sub(r"\$\{[^}]*\}", "secret", url)).store.reveal()
    assert found == "postgresql://gateway:secret@postgres/gateway"


def test_gateways_may_share_limits_in_the_valkey_server_of_the_profile() -> None:
    """It starts only with the profile; the line that leads to it stands in the file as a comment."""
    server = compose("compose.yaml")["valkey"]
    assert server["profiles"] == ["valkey"] and "healthcheck" in server
    [line] = re.findall(r"# (GATEWAY__LIMITS__VALKEY: .*)", (DEPLOY / "compose.yaml").read_text())
    name, _, url = line.partition(": ")
    found = settings(**{name: url}).limits.valkey
    assert found is not None and found.reveal() == "valkey://valkey:6379/0"


def test_image_compose_and_prometheus_use_the_same_port() -> None:
    """The port that is listened on is the one exposed, published, balanced and scraped."""
    port = settings().listen.port
    published = [f"127.0.0.1:{port}:{port}"]
    assert compose("compose.single.yaml")["gateway"]["ports"] == published
    assert compose("compose.yaml")["balancer"]["ports"] == published
    assert all("ports" not in service for service in gateways("compose.yaml").values())
    balanced = re.findall(r"server (\S+) resolve", (DEPLOY / "nginx" / "nginx.conf").read_text())
    replicas = [f"{name}:{port}" for name in gateways("compose.yaml")]
    assert scrape_targets("scrape.yml") == balanced == replicas
    assert scrape_targets("scrape.single.yml") == [f"gateway:{port}"]


@pytest.mark.parametrize(("file", "scrape"), [(FILES[0], "scrape.yml"), (FILES[1], "scrape.single.yml")])
def test_prometheus_scrapes_every_gateway_by_an_allowed_host(file: str, scrape: str) -> None:
    """It asks by the service's name, which compose resolves and the gateway's Host check admits."""
    hosts = {target.partition(":")[0] for target in scrape_targets(scrape)}
    assert hosts == gateways(file).keys()
    assert hosts <= set(settings().allowed_hosts)
    assert compose(file)["prometheus"]["volumes"] == [
        f"./prometheus/{scrape}:/etc/prometheus/prometheus.yml:ro",
        "./prometheus/alerts.yml:/etc/prometheus/alerts.yml:ro",
        "metrics:/prometheus",
    ]


@pytest.mark.parametrize("file", FILES)
def test_compose_sets_the_variables_that_the_container_needs(file: str) -> None:
    """Every variable that has no default is handed on, and a missing one stops compose with the same text."""
    text = CONTAINER_CONFIG.read_text()
    needed = set(re.findall(r"\$\{(\w+):\?", text))
    for service in gateways(file).values():
        environment = service["environment"]
        assert isinstance(environment, dict)
        assert needed <= environment.keys() <= set(re.findall(r"\$\{(\w+)", text))
        for name, value in environment.items():
            assert name == "GATEWAY_STORE" or value in text, name


@pytest.mark.parametrize(("file", "name"), SERVICES)
def test_compose_gives_no_privilege(file: str, name: str) -> None:
    """No capabilities, no way to gain them, no writable root, and nothing published beyond this machine."""
    service = compose(file)[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["restart"] == "unless-stopped"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("file", FILES)
def test_compose_files_that_are_mounted_exist(file: str) -> None:
    for service in compose(file).values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (DEPLOY / volume.partition(":")[0]).exists(), volume


@pytest.mark.parametrize("file", FILES)
def test_stop_grace_periods_exceed_the_drain_time(file: str) -> None:
    """The engine does not kill a gateway, nor the balancer before it, while open streams have time to finish."""
    # Several workers get five seconds more from their parent.
    needed_s = settings().limits.drain + 5
    services = compose(file)
    for name in (*gateways(file), *({"balancer"} & services.keys())):
        assert float(str(services[name]["stop_grace_period"]).removesuffix("s")) > needed_s


def test_grafana_is_provisioned_with_the_source_and_the_dashboards() -> None:
    """The folder that the provider reads is the one that compose mounts; the source is compose's Prometheus."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "twolane.yaml").read_text())["providers"]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    services = compose("compose.yaml")
    assert f"./grafana:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    assert source["url"] == "http://prometheus:9090"
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text())
    assert source["jsonData"]["timeInterval"] == scrape["global"]["scrape_interval"]


@pytest.mark.deploy
def test_compose_files_follow_the_compose_specification() -> None:
    command = [
        TOOLS / "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        *(DEPLOY / name for name in FILES),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
