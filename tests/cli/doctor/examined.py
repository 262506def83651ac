"""An examination of a configuration by its text, with nothing but what a test gives it."""

from pathlib import Path

from gateway.cli.doctor.examination import examine
from gateway.cli.doctor.findings import Finding
from gateway.config import LoadedConfig, load
from gateway.registry.check import check_plugins
from gateway.testing.ports import free_port


def loaded(text: str, *, folder: Path) -> LoadedConfig:
    """Return the configuration with an address and a store of its own."""
    file = folder / "gateway.yaml"
    file.write_text(f"listen: 127.0.0.1:{free_port()}\n{text}")
    return load(file, environ={}, flags={}, checks=(check_plugins,))


async def examined(text: str, *, folder: Path, timeout_s: float = 60.0) -> dict[str, Finding]:
    """Return the findings by what they are about."""
    return {one.about: one async for one in examine(loaded(text, folder=folder), timeout_s=timeout_s)}
