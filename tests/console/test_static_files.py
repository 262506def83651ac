"""The files of others that the console serves, as their authors published them."""

import hashlib
import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "gateway" / "console" / "static"
ROW = re.compile(r"^\| `(?P<file>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)


def listed() -> dict[str, str]:
    return {row["file"]: row["digest"] for row in ROW.finditer((STATIC / "THIRD_PARTY.md").read_text())}


def test_third_party_files_match_their_published_sha256() -> None:
    """THIRD_PARTY.md gives its SHA-256."""
    assert listed() == {file: hashlib.sha256((STATIC / file).read_bytes()).hexdigest() for file in listed()}


def test_each_library_comes_with_its_licence() -> None:
    """Both libraries, and the text of the licence of each."""
    assert listed().keys() == {"htmx.min.js", "htmx.LICENSE", "sse.js", "sse.LICENSE"}
    for file in ("htmx.LICENSE", "sse.LICENSE"):
        assert "Permission to use, copy, modify, and/or distribute" in (STATIC / file).read_text()


def test_bundled_libraries_reference_no_external_url() -> None:
    """No address of another host, and no source map that a browser's tools would ask for."""
    for file in (file for file in listed() if file.endswith(".js")):
        text = (STATIC / file).read_text()
        assert not re.search(r"""["'`](?:https?:)?//\w""", text) and "sourceMappingURL" not in text, file
