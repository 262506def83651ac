"""The bill of materials of a release (CycloneDX), and the licences of what it names.

`make release` and deploy/Dockerfile run it: it installs a requirements file and the wheel into an environment of its
own, and describes that. The files of other projects that the wheel contains stand in bundled.cdx.json, which the wheel
carries, too.
"""

import argparse
import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT: Final = Path(__file__).resolve().parents[2]
BUNDLED: Final = Path(__file__).with_name("bundled.cdx.json")
_TEXT: Final = re.compile(r"licen[cs]e|notice|copying", re.IGNORECASE)
_RULE: Final = f"\n{'=' * 80}\n"


def main() -> None:
    """Write the two files of each requirements file beside the wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path, help="the folder with the wheel")
    parser.add_argument("environments", type=Path, help="the folder for an environment for each requirements file")
    parser.add_argument("requirements", type=Path, nargs="+", help="the file with the versions to install")
    options = parser.parse_args()
    (wheel,) = options.dist.glob("*.whl")
    for requirements in options.requirements:
        python = install(options.environments / requirements.stem, requirements, wheel)
        found = {canonical(each.name): each for each in distributions(path=[site_of(python)])}
        name = f"twolane-{found['twolane'].version}-{requirements.stem}"
        bill = json.dumps(described(python, found), indent=1)
        (options.dist / f"{name}.cdx.json").write_text(f"{bill}\n", encoding="utf-8")
        (options.dist / f"{name}-licences.txt").write_text(_RULE.join(licences(found)), encoding="utf-8")


def install(folder: Path, requirements: Path, wheel: Path) -> Path:
    """Return the interpreter of a new environment that has these, and nothing else."""
    venv.create(folder, clear=True, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-compile", "--require-hashes", "-r", requirements], check=True)
    subprocess.run([*pip, "--no-compile", "--no-deps", wheel], check=True)
    return python


def site_of(python: Path) -> str:
    """Return the folder that has the distributions of this environment."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    return str(site)


def canonical(name: str) -> str:
    """Return the name of a distribution in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def described(python: Path, found: Mapping[str, Distribution]) -> dict[str, Any]:
    """Return the bill of an environment, with the bundled files; exit where a component has no licence."""
    command = [Path(sys.executable).with_name("cyclonedx-py"), "environment", "--output-reproducible"]
    command += ["--pyproject", ROOT / "pyproject.toml", python]
    bill = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for component in bill["components"]:
        component.setdefault("licenses", [{"license": {"name": licence_of(found[canonical(component["name"])])}}])
    version = found["twolane"].version
    root = bill["metadata"]["component"]
    root |= {"version": version, "purl": f"pkg:pypi/twolane@{version}"}
    bundled = json.loads(BUNDLED.read_text(encoding="utf-8"))
    bill["components"] += bundled["components"]
    refs = [component["bom-ref"] for component in bundled["components"]]
    (needs,) = (each["dependsOn"] for each in bill["dependencies"] if each["ref"] == root["bom-ref"])
    needs += refs
    bill["dependencies"] += [{"ref": ref} for ref in refs]
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)):
        raise SystemExit(f"the bill of materials does not follow its schema: {error}")
    return dict(bill)


def licences(found: Mapping[str, Distribution]) -> Iterator[str]:
    """Yield one part for each distribution: its name, its licence, and the texts of its licences and notices."""
    for name in sorted(found):
        texts = "\n\n".join(_texts(found[name]))
        yield f"{found[name].name} {found[name].version}: {licence_of(found[name])}\n\n{texts}\n"


def licence_of(found: Distribution) -> str:
    """Return the licence of a distribution as its metadata name it, in the field that it has; exit where none does."""
    classes = [
        each.rpartition(" :: ")[2] for each in found.metadata.get_all("Classifier") or () if "License ::" in each
    ]
    named = found.metadata.get("License-Expression") or ", ".join(classes) or found.metadata.get("License", "")
    if not named:
        raise SystemExit(f"the metadata of {found.name} name no licence: look it up before you publish")
    return named.splitlines()[0]


def _texts(found: Distribution) -> Iterator[str]:
    for file in found.files or ():
        if file.parts[0].endswith(".dist-info") and _TEXT.search(file.name):
            yield file.read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    main()
