"""Who may write a file: refused where everybody may, warned about where a group may, at each place that reads one."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gateways import ended

from gateway.config import ConfigError, LoadedConfig, load
from gateway.config.file_access import find_file_system_type
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text("sk-upstream")
    (tmp_path / "prompt").write_text("Be kind.")
    declared = {
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:1", "api_key_file": "secret"}],
        "prompts": {"kind": {"file": "prompt"}},
    }
    (tmp_path / "gateway.yaml").write_text(json.dumps(declared))
    return tmp_path


def loaded(folder: Path) -> LoadedConfig:
    return load(folder / "gateway.yaml", environ={}, flags={})


@pytest.mark.parametrize("name", ["gateway.yaml", "secret", "prompt"])
def test_world_writable_config_file_is_refused(folder: Path, name: str) -> None:
    """The configuration and what it names, with the command that mends it."""
    assert loaded(folder).warnings == ()
    (folder / name).chmod(0o666)
    with pytest.raises(
        ConfigError, match=f"can be written by every user, so it is not used: chmod o-w {folder / name}"
    ):
        loaded(folder)


@pytest.mark.parametrize("name", ["gateway.yaml", "secret"])
def test_group_writable_file_is_reported_with_a_warning(folder: Path, name: str) -> None:
    """Volumes of containers are like that."""
    (folder / name).chmod(0o660)
    (warning,) = loaded(folder).warnings
    assert f"can be written by its group: unless you mean that, chmod g-w {folder / name}" in warning


def test_folder_writable_by_others_is_reported_with_a_warning(folder: Path) -> None:
    """Unless it is one like /tmp, where only its owner may replace a file."""
    folder.chmod(0o777)
    assert all("can be replaced by others, who may write its folder" in warning for warning in loaded(folder).warnings)
    assert len(loaded(folder).warnings) == 2
    folder.chmod(0o1777)
    assert loaded(folder).warnings == ()


@pytest.mark.parametrize("name", ["gateway.db", "gateway.db-wal", "gateway.db-shm"])
async def test_world_writable_store_file_refuses_to_open(tmp_path: Path, name: str) -> None:
    """Also by the files beside it; its group is warned about."""
    tmp_path.chmod(0o755)
    one, other = (SqliteStore(str(tmp_path / "gateway.db")) for _ in range(2))
    await one.open()
    await one.put_prompt("p", "x", tenant="acme", now_s=1.0)  # SQLite itself mends the mode of an empty log
    (tmp_path / name).chmod(0o666)
    try:
        with pytest.raises(StoreError, match=f"can be written by every user, so it is not used: chmod o-w .*{name}"):
            await other.open()
    finally:
        await one.close()


async def test_group_writable_store_opens_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the next step."""
    tmp_path.chmod(0o755)
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.close()
    (tmp_path / "gateway.db").chmod(0o660)
    with caplog.at_level(logging.WARNING):
        store = SqliteStore(str(tmp_path / "gateway.db"))
        await store.open()
        await store.close()
    assert "can be written by its group: unless you mean that, chmod g-w" in caplog.text


async def test_check_config_refuses_world_writable_config_file(folder: Path) -> None:
    """Before a start does."""
    (folder / "gateway.yaml").chmod(0o646)
    code, _, errors = await ended("check-config", "-c", str(folder / "gateway.yaml"))
    assert code != 0 and "can be written by every user" in errors


#: Mounts a folder read-only in namespaces of its own, and loads the configuration in it.
READ_ONLY = """
import sys
from gateway.config import load
from gateway.sandbox import namespaces
from pathlib import Path
folder = sys.argv[1]
namespaces.enter_namespaces(mounts_only=True)
namespaces.make_read_only_except(f"{folder}/elsewhere")
print(*load(Path(folder, "gateway.yaml"), environ={}, flags={}).warnings)
"""


def test_world_writable_file_on_read_only_mount_is_reported(folder: Path) -> None:
    """Volumes of Kubernetes may have any modes, and no chmod changes them."""
    for name in ("gateway.yaml", "secret", "prompt"):
        (folder / name).chmod(0o777)
    (folder / "elsewhere").mkdir()
    run = subprocess.run([sys.executable, "-c", READ_ONLY, str(folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("looks as if every user may write it, and its mount lets no mode say otherwise") == 2


def test_file_system_type_of_a_device_is_read_from_mounts() -> None:
    """Also behind optional fields; a device that is not mounted has none."""
    mounts = (
        "22 27 0:20 / /sys rw,nosuid shared:2 - sysfs sysfs rw\n"
        "31 27 0:44 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync,aname=drvfs\n"
    )
    assert (
        find_file_system_type(os.makedev(0, 44), mounts) == "9p"
        and find_file_system_type(os.makedev(0, 20), mounts) == "sysfs"
    )
    assert find_file_system_type(os.makedev(9, 9), mounts) is None
