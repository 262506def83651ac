"""Render a chart with Helm's own engine, and hold what comes out against the schemas of Kubernetes.

The interpreter of .venv-deploy runs it: `render_chart.py CHART <cases.json`, where a case is a name and its values. It
prints by the name of each case its `manifests`, the `faults` that the schemas find in them, or the `error` of Helm.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

#: The oldest version that the chart accepts, and the newest that there are schemas for.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
#: Of the Prometheus operator: its kinds are none of Kubernetes' own.
FOREIGN = "monitoring.coreos.com/"


def rendered(chart: helm_python.Chart, values: dict[str, object]) -> dict[str, object]:
    try:
        chart.validate_schema(values)
        files = chart.render(values, name="demo", namespace="prod")
    except helm_python.HelmError as error:
        return {"error": str(error)}
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest is not None]
    return {"manifests": manifests, "faults": [fault for manifest in manifests for fault in faults(manifest)]}


def faults(manifest: dict[str, str]) -> list[str]:
    found = []
    for version in () if manifest["apiVersion"].startswith(FOREIGN) else VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{manifest['kind']}, Kubernetes {version}: {error.message}")
    return found


def main() -> None:
    (path,) = sys.argv[1:]
    with helm_python.Chart.load(path) as chart:
        answer = {name: rendered(chart, values) for name, values in json.load(sys.stdin).items()}
    errors = [message for message in helm_python.lint(path)["messages"] if message["severity"] > 1]
    json.dump({"lint": errors, "cases": answer}, sys.stdout)


if __name__ == "__main__":
    main()
