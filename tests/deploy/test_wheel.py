"""A release, built as it is published, and its wheel in an environment of its own (make test-wheel)."""

import hashlib
import json
import os
import re
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest

from gateway import __version__
from gateway.demo.script import GREETING
from gateway.testing.ports import free_port

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `make release` writes, and with the environment that it installs the wheel into."""
    home = tmp_path_factory.mktemp("release")
    run("make", "release", f"DIST={home / 'dist'}", f"ENVIRONMENTS={home}", "BILLS=base", cwd=ROOT)
    return home


@pytest.fixture(scope="module")
def python(home: Path) -> Path:
    """An environment with the wheel, and with another distribution that has a package `plugins`."""
    found = home / "base" / "bin" / "python"
    site = Path(run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (site / "plugins").mkdir()  # fails if the wheel has brought one
    (site / "plugins" / "__init__.py").write_text("OTHERS = True\n")
    return found


def test_checksums_list_all_published_files(home: Path) -> None:
    """Each file that is published stands in SHA256SUMS, with its hash."""
    lines = (home / "dist" / "SHA256SUMS").read_text().splitlines()
    listed = {name: sha256 for sha256, name in (line.split() for line in lines)}
    files = {path.name: path for path in (home / "dist").glob("twolane-*")}
    stem = f"twolane-{__version__}"
    wheel, bill, texts = f"{stem}-py3-none-any.whl", f"{stem}-base.cdx.json", f"{stem}-base-licences.txt"
    assert set(files) == {f"{stem}.tar.gz", wheel, bill, texts}
    assert listed == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def test_source_distribution_matches_the_tracked_files(home: Path) -> None:
    """Each tracked file, and no other but the metadata of the package: a leftover of your checkout fails here."""
    with tarfile.open(home / "dist" / f"twolane-{__version__}.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files", cwd=ROOT).splitlines())
    assert packed - tracked == {"PKG-INFO"}
    assert tracked - packed == set()


def test_bill_of_materials_lists_installed_and_bundled_packages(home: Path, python: Path) -> None:
    """Every distribution and every file of others, each with a version and a licence; the texts stand beside it."""
    bill = json.loads((home / "dist" / f"twolane-{__version__}-base.cdx.json").read_text())
    texts = (home / "dist" / f"twolane-{__version__}-base-licences.txt").read_text()
    code = "import importlib.metadata as m; print('\\n'.join(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = set(run(python, "-I", "-c", code, cwd=home).split())
    own = f"twolane=={__version__}"
    named = {f"{each['name']}=={each['version']}" for each in bill["components"]}
    bundled = {"htmx.org==2.0.11", "htmx-ext-sse==2.2.4"}
    assert named == installed - {own} | bundled
    assert all(each["licenses"] and each["purl"] for each in bill["components"])
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/twolane@{__version__}"
    assert {"==".join(line) for line in re.findall(r"^([\w.-]+) (\d[\w.]*): \S", texts, re.MULTILINE)} == installed
    assert "Zero-Clause BSD" in texts


def test_wheel_installs_one_package_with_types_schema_and_examples(python: Path, tmp_path: Path) -> None:
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
    assert f"twolane-{__version__}.dist-info/sboms/bundled.cdx.json" in lines
    assert f"twolane-{__version__}.dist-info/licenses/gateway/console/static/htmx.LICENSE" in lines
    console = {str(path.relative_to(ROOT)) for path in (ROOT / "gateway" / "console").rglob("*") if path.is_file()}
    assert "gateway/console/static/htmx.min.js" in console
    assert {path for path in console if "__pycache__" not in path} <= set(lines)


@pytest.mark.parametrize("how", [("-m", "gateway"), ("-P", "-m", "gateway")])
def test_foreign_plugins_packages_do_not_shadow_gateway_plugins(
    python: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """Neither that of another distribution nor a folder `plugins` with an `__init__.py` where the gateway starts."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "gateway.yaml").write_text("{}\n")
    said = run(python, *how, "check-config", cwd=tmp_path)
    assert "gateway.yaml: ok" in said and "prompt_enhancer" in said


def test_the_command_starts_a_gateway_that_answers(python: Path, tmp_path: Path) -> None:
    """`gateway run` in an empty folder, and one chat with the demo model."""
    command = python.with_name("gateway")
    assert __version__ in run(command, "version", cwd=tmp_path)
    port = free_port()
    with subprocess.Popen([command, "run", "--port", str(port)], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode() == f"Twolane {__version__} is ready.\n"
            body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Say hello"}]}).encode()
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"]
        finally:
            process.terminate()
    assert said.startswith(GREETING)
