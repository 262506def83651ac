"""The wheel, built and installed into an environment of its own (make test-wheel)."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with another distribution that has a package `plugins`."""
    home = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", home / "dist", ROOT, cwd=home)
    venv.create(home / "venv", with_pip=True)
    found = home / "venv" / "bin" / "python"
    (wheel,) = (home / "dist").glob("*.whl")
    run(found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=home)
    site = Path(run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (site / "plugins").mkdir()  # fails if the wheel has brought one
    (site / "plugins" / "__init__.py").write_text("OTHERS = True\n")
    return found


def test_it_brings_one_package_with_its_types_its_schema_and_examples(python: Path, tmp_path: Path) -> None:
    """Nothing else stands beside it in site-packages."""
    code = (
        "import importlib.metadata as m; print('\\n'.join(sorted({f.parts[0] for f in m.files('twolane')})));"
        "print('\\n'.join(str(f) for f in m.files('twolane')))"
    )
    lines = run(python, "-c", code, cwd=tmp_path).splitlines()
    tops = {line for line in lines if "/" not in line and not line.endswith(".dist-info")}
    assert tops == {"..", "gateway"} or tops == {"gateway"}
    for file in ("py.typed", "gateway.schema.json", "gateway.yaml", "plugins/stages/memory.py"):
        assert f"gateway/{file}" in lines
    assert any(line.startswith("gateway/examples/workflows/") for line in lines)
    console = {str(path.relative_to(ROOT)) for path in (ROOT / "gateway" / "console").rglob("*") if path.is_file()}
    assert "gateway/console/static/htmx.min.js" in console
    assert {path for path in console if "__pycache__" not in path} <= set(lines)


@pytest.mark.parametrize("how", [("-m", "gateway"), ("-P", "-m", "gateway")])
def test_others_packages_of_that_name_hide_none_of_ours(python: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    """Neither that of another distribution nor a folder `plugins` with an `__init__.py` where the gateway starts."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "gateway.yaml").write_text("{}\n")
    said = run(python, *how, "check-config", cwd=tmp_path)
    assert "gateway.yaml: ok" in said and "prompt_enhancer" in said
