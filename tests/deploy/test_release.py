"""The facts of a release: its version, and the files of other projects that its wheel contains."""

import hashlib
import json
import re
from pathlib import Path

from gateway import __version__

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "gateway" / "console" / "static"


def test_changelog_and_readme_name_the_current_version() -> None:
    """The newest chapter of the changelog is that of this version, and the banner in the README shows it."""
    chapters = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert chapters[0][0] == __version__
    assert f"\nTwolane {__version__} is ready.\n" in (ROOT / "README.md").read_text()


def test_every_requirements_file_is_locked() -> None:
    """`make lock` writes each file, and each requirement in it has an exact version and a hash."""
    files = {path.name: path.read_text() for path in (ROOT / "requirements").iterdir()}
    assert set(re.findall(r" -o requirements/(\S+)", (ROOT / "Makefile").read_text())) == set(files)
    for name, text in files.items():
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.\[\],-]+==\S+", requirement) and "--hash=sha256:" in requirement, (name, requirement)


def test_bundled_files_match_the_bill_of_materials() -> None:
    """Each file has its hash in bundled.cdx.json, and its package the version and licence of THIRD_PARTY.md."""
    bill = json.loads((ROOT / "deploy" / "release" / "bundled.cdx.json").read_text())
    rows = re.findall(r"^\| `(\S+\.js)` \| `([\w.-]+)`.*? \| (\S+) \| (\S+) \| (\S+) \|", _third_party(), re.MULTILINE)
    found = set()
    for component in bill["components"]:
        (file,) = component["components"]
        (licence,) = (each["license"]["id"] for each in component["licenses"])
        (source,) = (each["url"] for each in component["externalReferences"])
        found.add((Path(file["name"]).name, component["name"], component["version"], licence, source))
        assert file["hashes"][0]["content"] == hashlib.sha256((ROOT / file["name"]).read_bytes()).hexdigest()
        assert component["purl"] == f"pkg:npm/{component['name']}@{component['version']}"
    assert found == set(rows)
    assert {name for name, *_ in found} == {path.name for path in STATIC.glob("*.js")} - {"console.js"}


def _third_party() -> str:
    return (STATIC / "THIRD_PARTY.md").read_text()
