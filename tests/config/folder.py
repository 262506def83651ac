"""A folder with a gateway.yaml, and what the loader makes of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import ConfigError, LoadedConfig, load

CONFIG = Path("gateway.yaml")


class Folder:
    """The current folder of a test; `load` and `problems` read the gateway.yaml that `write` left there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def load(self, text: str, environ: Mapping[str, str] | None = None, **flags: object) -> LoadedConfig:
        self.write(CONFIG.name, text)
        return load(CONFIG, environ=environ or {}, flags=flags)

    def problems(self, text: str | bytes, environ: Mapping[str, str] | None = None, **flags: object) -> list[str]:
        self.write(CONFIG.name, text)
        with pytest.raises(ConfigError) as caught:
            load(CONFIG, environ=environ or {}, flags=flags)
        assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
        return [str(problem) for problem in caught.value.problems]

    def problem(self, text: str | bytes, environ: Mapping[str, str] | None = None, **flags: object) -> str:
        (only,) = self.problems(text, environ, **flags)
        return only
