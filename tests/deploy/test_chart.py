"""The Helm chart, rendered by Helm's own engine and held against the schemas of Kubernetes (make test-deploy)."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from gateway import __version__
from gateway.config import load

from .files import DEPLOY, ENVIRON, TOOLS, last

pytestmark = pytest.mark.deploy

CHART = DEPLOY / "helm" / "twolane"
#: The example of deploy/README.md, and everything that can be switched on.
REPLICAS = yaml.safe_load(re.findall(r"```yaml\n(replicas:.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)[0])
EVERYTHING = {
    "store": {"secretName": "store"},
    "valkey": {"secretName": "valkey", "secretKey": "address"},
    "image": {"repository": "registry.example.com/twolane", "tag": "0.1.0@sha256:abc", "pullSecrets": ["registry"]},
    "autoscaling": {"enabled": True, "memory": 80},
    "ingress": {
        "enabled": True,
        "host": "ai.example.com",
        "className": "nginx",
        "tlsSecretName": "tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
    },
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}]},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "config": {"limits": {"connections": 1_000_000}, "allowed_hosts": ["ai.internal"], "usage": {"enabled": True}},
    "env": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "prices", "configMap": {"name": "prices"}}],
    "extraVolumeMounts": [{"name": "prices", "mountPath": "/etc/prices"}],
    "podAnnotations": {"team": "ai"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "drainSeconds": 120,
}
GOOD = {"default": {}, "replicas": REPLICAS, "everything": EVERYTHING}
REFUSED = {
    "replicas on a file": ({"replicas": 2}, "store.secretName: more than one replica needs a PostgreSQL store"),
    "autoscaling on a file": ({"autoscaling": {"enabled": True}}, "store.secretName: more than one replica needs"),
    "own address": ({"config": {"listen": "0.0.0.0:1"}}, "config.listen: the chart sets it"),
    "own drain": ({"config": {"limits": {"drain": "1s"}}}, "config.limits.drain: set drainSeconds"),
    "own place of shares": (
        {"config": {"limits": {"valkey": "valkey://a"}}},
        "config.limits.valkey: set valkey.secretName",
    ),
    "ingress without a name": ({"ingress": {"enabled": True}}, "ingress.host: the name by which clients reach the"),
    "unknown value": ({"replica": 2}, "additional properties 'replica' not allowed"),
    "wrong type": ({"drainSeconds": "30s"}, "got string, want integer"),
}


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    cases = {**GOOD, **{name: values for name, (values, _) in REFUSED.items()}}
    command = [TOOLS / "python", DEPLOY.parent / "tests" / "deploy" / "render_chart.py", CHART]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def manifests(answer: dict[str, Any], case: str) -> list[dict[str, Any]]:
    assert "error" not in answer["cases"][case], answer["cases"][case]
    found: list[dict[str, Any]] = answer["cases"][case]["manifests"]
    return found


def one(answer: dict[str, Any], case: str, kind: str, name: str = "demo-twolane") -> dict[str, Any]:
    """Return the one manifest of a kind and a name."""
    [found] = [each for each in manifests(answer, case) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(answer: dict[str, Any], case: str) -> dict[str, Any]:
    found: dict[str, Any] = one(answer, case, "Deployment")["spec"]["template"]["spec"]
    return found


def config_of(answer: dict[str, Any], case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one(answer, case, "ConfigMap")["data"]["gateway.yaml"])
    return found


@pytest.mark.parametrize("case", GOOD)
def test_chart_renders_what_the_schemas_of_kubernetes_accept(answer: dict[str, Any], case: str) -> None:
    """For the oldest and the newest version, strictly: no field that a server would drop."""
    assert manifests(answer, case)
    assert answer["cases"][case]["faults"] == []
    assert answer["lint"] == []


@pytest.mark.parametrize("case", REFUSED)
def test_chart_refuses_values_that_cannot_work(answer: dict[str, Any], case: str) -> None:
    assert REFUSED[case][1] in answer["cases"][case]["error"]


@pytest.mark.parametrize("case", GOOD)
def test_chart_creates_nothing_outside_its_namespace_and_no_rights(answer: dict[str, Any], case: str) -> None:
    """Rights in one namespace are enough to install it; the pods have no account for the API of Kubernetes."""
    kinds = {each["kind"] for each in manifests(answer, case)}
    assert {each["metadata"]["namespace"] for each in manifests(answer, case)} == {"prod"}
    assert not {kind for kind in kinds if "Role" in kind or kind in ("Namespace", "CustomResourceDefinition", "Secret")}
    assert one(answer, case, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod(answer, case)["automountServiceAccountToken"] is False


@pytest.mark.parametrize("case", GOOD)
def test_chart_runs_pods_by_the_restricted_standard(answer: dict[str, Any], case: str) -> None:
    """As the image is made: its user, a root that is read-only, and the image's writable folder."""
    spec = pod(answer, case)
    user, group = last("USER").split(":")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert [spec["securityContext"][key] for key in ("runAsUser", "runAsGroup")] == [int(user), int(group)]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in ("state", "tmp")}
    assert writable == {last("WORKDIR"), "/tmp"}
    assert container["args"] == yaml.safe_load(last("CMD"))


@pytest.mark.parametrize("case", GOOD)
def test_gateway_accepts_the_configuration_of_the_chart(answer: dict[str, Any], case: str, tmp_path: Any) -> None:
    """Its addresses are the ports of the pod, and its drain fits into the time that Kubernetes gives a pod to stop."""
    file = tmp_path / "gateway.yaml"
    file.write_text(one(answer, case, "ConfigMap")["data"]["gateway.yaml"])
    given = {
        "GATEWAY_STORE": "postgresql://gateway@db/gateway",
        "GATEWAY_VALKEY": "valkey://valkey:6379/0",
        "POD_IP": "10.0.0.7",
    }
    settings = load(file, environ={**ENVIRON, **given}, flags={}).settings
    [container] = pod(answer, case)["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.admin.listen is not None and settings.replicas.listen is not None
    own = {"http": settings.listen.port, "admin": settings.admin.listen.port}
    assert ports == {**own, "replicas": settings.replicas.listen.port}
    pause_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    # A process ends at the latest 20 s behind `limits.drain` (docs/operations.md).
    assert pod(answer, case)["terminationGracePeriodSeconds"] >= pause_s + settings.limits.drain + 20
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "admin"


def test_values_reach_the_configuration_as_they_are(answer: dict[str, Any]) -> None:
    """Large numbers, too; names of the Service, of the Ingress and of the operator are allowed hosts."""
    found = config_of(answer, "everything")
    assert found["limits"] == {"connections": 1_000_000, "drain": "120s", "valkey": "${GATEWAY_VALKEY}"}
    variables = {one["name"]: one.get("valueFrom") for one in pod(answer, "everything")["containers"][0]["env"]}
    assert variables["GATEWAY_VALKEY"] == {"secretKeyRef": {"name": "valkey", "key": "address"}}
    assert {"demo-twolane.prod.svc", "ai.example.com", "ai.internal"} <= set(found["allowed_hosts"])
    assert found["usage"] == {"enabled": True}


def test_secrets_stand_in_the_chart_by_reference_only(answer: dict[str, Any]) -> None:
    [container] = pod(answer, "replicas")["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "twolane"}}]
    sources = {one["name"]: one["valueFrom"] for one in container["env"]}
    assert sources["GATEWAY_STORE"] == {"secretKeyRef": {"name": "twolane-store", "key": "url"}}
    found = config_of(answer, "replicas")
    assert found["store"] == "${GATEWAY_STORE}"
    assert all(key["sha256"].startswith("${") for key in found["keys"])


def test_a_file_store_has_one_pod_and_a_volume_that_stays(answer: dict[str, Any]) -> None:
    """The old pod ends before the new one starts; `helm uninstall` leaves the volume."""
    spec = one(answer, "default", "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    claim = one(answer, "default", "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    [state] = [volume for volume in pod(answer, "default")["volumes"] if volume["name"] == "state"]
    assert state["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert config_of(answer, "default")["store"] == f"sqlite:///{last('WORKDIR')}/gateway.db"
    assert not [each for each in manifests(answer, "default") if each["kind"] == "PodDisruptionBudget"]


def test_replicas_are_rolled_spread_and_protected(answer: dict[str, Any]) -> None:
    """A new pod is ready before an old one stops; zones and nodes share them; one at a time is evicted."""
    spec = one(answer, "replicas", "Deployment")["spec"]
    assert spec["replicas"] == REPLICAS["replicas"] > 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    spread = [each["topologyKey"] for each in pod(answer, "replicas")["topologySpreadConstraints"]]
    assert spread == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert one(answer, "replicas", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not [each for each in manifests(answer, "replicas") if each["kind"] == "PersistentVolumeClaim"]


def test_autoscaler_counts_requests_under_way_and_falls_back(answer: dict[str, Any]) -> None:
    """By the metric that the adapter's rule serves under the same name; CPU and memory count beside it."""
    spec = one(answer, "everything", "HorizontalPodAutoscaler")["spec"]
    assert spec["scaleTargetRef"]["name"] == one(answer, "everything", "Deployment")["metadata"]["name"]
    assert "replicas" not in one(answer, "everything", "Deployment")["spec"]
    by_requests, *others = spec["metrics"]
    [rule] = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text())["rules"]["custom"]
    assert by_requests["pods"]["metric"]["name"] == rule["name"]["as"]
    assert [each["resource"]["name"] for each in others] == ["cpu", "memory"]


def test_network_policy_opens_three_ports_and_closes_the_metadata_service(answer: dict[str, Any]) -> None:
    """Clients, replicas and Prometheus reach one port each; nothing goes to 169.254.0.0/16."""
    spec = one(answer, "everything", "NetworkPolicy")["spec"]
    clients, replicas, monitoring = spec["ingress"]
    assert [rule["ports"][0]["port"] for rule in spec["ingress"]] == ["http", "replicas", "admin"]
    own = one(answer, "everything", "Deployment")["spec"]["selector"]["matchLabels"]
    assert replicas["from"] == [{"podSelector": {"matchLabels": own}}]
    assert clients["from"] == EVERYTHING["networkPolicy"]["clients"]  # type: ignore[index]
    assert monitoring["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    blocks = [peer["ipBlock"] for rule in spec["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer]
    assert all("169.254.0.0/16" in block["except"] for block in blocks)
    assert "from" not in one(answer, "default", "NetworkPolicy")["spec"]["ingress"][0]


def test_service_monitor_finds_each_replica_under_the_job_of_the_alerts(answer: dict[str, Any]) -> None:
    monitor = one(answer, "everything", "ServiceMonitor")
    admin = one(answer, "everything", "Service", "demo-twolane-admin")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= admin["metadata"]["labels"].items()
    assert not (
        monitor["spec"]["selector"]["matchLabels"].items()
        <= one(answer, "everything", "Service")["metadata"]["labels"].items()
    )
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] == admin["spec"]["ports"][0]["name"]
    labels = {rule["targetLabel"]: rule for rule in endpoint["relabelings"]}
    assert labels["job"]["replacement"] == "gateway"
    assert labels["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_chart_has_the_same_alerts_and_dashboards_as_prometheus_and_grafana(answer: dict[str, Any]) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    assert one(answer, "everything", "PrometheusRule")["spec"] == rules
    boards = one(answer, "everything", "ConfigMap", "demo-twolane-dashboards")
    files = {f"twolane-{path.name}": json.loads(path.read_text()) for path in (DEPLOY / "grafana").glob("*.json")}
    assert {name: json.loads(text) for name, text in boards["data"].items()} == files
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_chart_installs_the_version_of_this_gateway(answer: dict[str, Any]) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert pod(answer, "default")["containers"][0]["image"] == f"twolane/twolane:{__version__}"
