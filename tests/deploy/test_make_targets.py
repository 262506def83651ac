"""The targets of the Makefile that name folders of tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_test_postgres_covers_every_postgres_test() -> None:
    """`make test-postgres` collects the folders that have one, and not all others."""
    (folders,) = re.findall(r"-m postgres \$\(addprefix tests/,([^)]*)\)", (ROOT / "Makefile").read_text())
    files = [
        path
        for path in ROOT.glob("tests/**/test_*.py")
        if "@pytest.mark.postgres" in (text := path.read_text()) or "pytestmark = pytest.mark.postgres" in text
    ]
    found = {str(path.parent.relative_to(ROOT / "tests")) for path in files if path != Path(__file__)}
    assert found == set(folders.split())
