"""`gateway plugin new`: what it writes works as it is, and is what the documentation shows."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.cli.main import main
from gateway.cli.plugin_new import (
    NewKind,
    PluginNewError,
    load_template,
    render_template,
    write_and_report,
    write_plugin,
)
from gateway.config import load

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
KINDS: tuple[NewKind, ...] = ("stages", "tools", "assessors")
#: The shortest name, an ordinary one, the longest.
NAMES = ("x", "my_own", "abcdefghij" * 4)
SHOWN: dict[NewKind, str] = {"stages": "polite", "tools": "count_words", "assessors": "short_texts"}


def test_generated_plugin_passes_checks_in_a_checkout(tmp_path: Path) -> None:
    """In a checkout: clean for ruff in style and format, for mypy --strict, its tests pass, a gateway can use it."""
    for name in ("pyproject.toml", "plugins"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "gateway").symlink_to(ROOT / "gateway")
    for package in ("tests", "tests/plugins", *(f"tests/plugins/{kind}" for kind in KINDS)):
        (tmp_path / package).mkdir()
        shutil.copy(ROOT / package / "__init__.py", tmp_path / package)
    folder = tmp_path / "plugins"
    files = [str(file) for kind in KINDS for name in NAMES for file in write_plugin(kind, name, folder=folder)]
    assert len(files) == len(set(files)) == 18 and all(Path(file).exists() for file in files)
    tests = [file for file in files if "/tests/" in file]
    (tmp_path / "gateway.yaml").write_text(
        "".join(render_template(load_template(kind).use, "my_own") for kind in KINDS)
    )
    for command in (
        ("ruff", "check", "--no-cache", *files),
        ("ruff", "format", "--no-cache", "--check", *files),
        ("mypy", "--strict", "--cache-dir", str(tmp_path / ".mypy"), "--follow-imports=silent", *files),
        ("pytest", *tests),
        ("gateway", "check-config"),
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("kind", KINDS)
def test_plugin_new_reports_written_files_and_configuration(
    kind: NewKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both files, how to try them, and what to write into gateway.yaml."""
    out = "\n".join([*write_and_report(kind, "mine", folder=tmp_path / "plugins"), ""])
    assert capsys.readouterr() == ("", "")
    assert f"wrote {tmp_path}/plugins/{kind}/mine.py\nwrote {tmp_path}/tests/plugins/{kind}/test_mine.py\n" in out
    assert render_template(load_template(kind).use, "mine") in out


def test_printed_test_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the gateway's Python; where that has no pytest, the line installs it first and runs this test alone."""
    lines = [*write_and_report("stages", "mine", folder=tmp_path / "my plugins")]
    command = lines[0].partition("Try it: ")[2].partition("\n")[0]
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr
    monkeypatch.setattr("gateway.cli.plugin_new.find_spec", lambda name: None)
    (tmp_path / "tests" / "conftest.py").write_text("import no_such_library\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    monkeypatch.chdir(tmp_path)
    (first, *_) = write_and_report("stages", "other", folder=tmp_path / "my plugins")
    installing, _, command = first.partition("Try it: ")[2].partition("\n")[0].partition(" && ")
    assert installing.endswith(" -m pip install pytest")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_generated_plugin_works_with_an_installed_gateway(tmp_path: Path) -> None:
    """Without a checkout, whatever the folder is called and the umask is: the tests pass, a gateway can use it."""
    folder = tmp_path / "my plugins"
    files = run_with_umask(0o002, lambda: [write_plugin(kind, "mine", folder=folder) for kind in KINDS])
    yaml = f"plugins: {{folder: {folder.name}}}\n" + "".join(
        render_template(load_template(kind).use, "mine") for kind in KINDS
    )
    (tmp_path / "gateway.yaml").write_text(yaml)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    for command in (*(("pytest", str(test)) for _, test in files), ("gateway", "check-config")):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *command], cwd=tmp_path, capture_output=True, text=True, env=environ
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    assert 'mine {note: "Answer in French."}' in done.stdout


def run_with_umask(mask: int, work: Callable[[], T]) -> T:
    before = os.umask(mask)
    try:
        return work()
    finally:
        os.umask(before)


def test_plugin_new_writes_into_the_configured_plugin_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plugins/` beside gateway.yaml, or what `plugins.folder` names."""
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "new", "tools", "mine"]) == 0
    (tmp_path / "site.yaml").write_text("plugins: {folder: ours}\n")
    assert main(["plugin", "new", "tools", "mine", "-c", "site.yaml"]) == 0
    capsys.readouterr()
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*mine.py")) == [
        "ours/tools/mine.py",
        "plugins/tools/mine.py",
        "tests/ours/tools/test_mine.py",
        "tests/plugins/tools/test_mine.py",
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_plugin_new_never_overwrites_files(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither file, and then the other one is not written either."""
    files = write_plugin("tools", "mine", folder=tmp_path / "plugins")
    files[1 - which].unlink()
    files[which].write_text("precious")
    monkeypatch.setenv("GATEWAY__PLUGINS__FOLDER", str(tmp_path / "plugins"))
    assert main(["plugin", "new", "tools", "mine"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"gateway: '{files[which]}' is there already") and err.count("\n") == 1
    assert files[which].read_text() == "precious" and not files[1 - which].exists()


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "_a", "a-b", "a.b", "../a", "a/b", "class", "a" * 41, "ä", "a\n", "http_request"]
)
def test_plugin_new_refuses_invalid_names(name: str, tmp_path: Path) -> None:
    """Of a file, of a module, of a tool that models can call; and none that is taken."""
    with pytest.raises(PluginNewError, match=re.escape(repr(name))):
        write_plugin("tools", name, folder=tmp_path / "plugins")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_raises_plugin_new_error(tmp_path: Path) -> None:
    """One sentence, no traceback."""
    (tmp_path / "plugins").write_text("a file")
    with pytest.raises(PluginNewError, match=r"cannot write .*plugins"):
        write_plugin("stages", "mine", folder=tmp_path / "plugins")


@pytest.mark.parametrize("kind", KINDS)
def test_documentation_contains_the_generated_plugin(kind: NewKind, tmp_path: Path) -> None:
    """docs/plugins.md has the very text, and configuration that loads."""
    page, name = (ROOT / "docs/plugins.md").read_text(), SHOWN[kind]
    section = page.partition(f"<!-- gateway plugin new {kind} {name}: ")[2]
    blocks = re.findall(r"^```(python|yaml)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert blocks[:2] == [
        ("python", render_template(load_template(kind).plugin, name)),
        ("yaml", render_template(load_template(kind).use, name)),
    ]
    file = tmp_path / "gateway.yaml"
    file.write_text(blocks[1][1])
    assert load(file, environ={}, flags={}).warnings == ()


def test_documentation_contains_the_generated_test() -> None:
    """The one of the stage, word for word."""
    section = (ROOT / "docs/plugins.md").read_text().partition("## Test your plugin\n")[2]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert blocks[0] == render_template(load_template("stages").test, "polite")
