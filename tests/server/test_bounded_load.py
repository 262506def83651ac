"""A reload that meets a file which does not answer, or is none."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from crash.disk import Disk
from gateways import config, fetch, until

from gateway.config import ConfigError, LoadedConfig, load
from gateway.server.bounded_load import BoundedLoad
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess


@pytest.fixture
def loaded() -> LoadedConfig:
    return load(None, environ={}, flags={})


def test_hanging_load_does_not_block_later_loads(loaded: LoadedConfig) -> None:
    """It is told, also while it goes on; once it is through, a further load is one like any other."""
    answers = threading.Event()

    def hangs() -> LoadedConfig:
        answers.wait()
        return loaded

    reading = BoundedLoad(hangs, is_ending=lambda: False, limit_s=0.05)
    with pytest.raises(ConfigError, match="does not answer: look at its file system, then send SIGHUP again"):
        reading()
    with pytest.raises(ConfigError, match="an earlier reload still waits for a file"):
        reading()
    answers.set()
    threads = [thread for thread in threading.enumerate() if thread.name == "configuration"]
    for thread in threads:
        thread.join()
    assert BoundedLoad(hangs, is_ending=lambda: False)() is loaded and reading() is loaded


def test_ending_process_does_not_wait_for_a_load() -> None:
    """However long the load may take."""
    reading = BoundedLoad(threading.Event().wait, is_ending=lambda: True, limit_s=1e6)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        reading()


def test_load_exception_is_raised_unchanged() -> None:
    """As it is."""

    def fails() -> LoadedConfig:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BoundedLoad(fails, is_ending=lambda: False)()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_pipe_in_place_of_a_file_fails_one_reload_and_nothing_else(workers: int) -> None:
    """The configuration, and a secret that it names; then a good file is used, and SIGTERM ends the gateway."""
    async with FakeUpstream(serve(build_answer(200, b"new"))) as upstream:
        good = config(upstream.base_url, workers=workers)
        async with GatewayProcess(good) as gateway:
            file, pipe = gateway.folder / "gateway.yaml", gateway.folder / "secret"
            os.mkfifo(pipe)
            of_secret = json.loads(good)
            of_secret["upstreams"][0]["api_key_file"] = str(pipe)
            for number, write in enumerate(
                (lambda: os.mkfifo(file), lambda: file.write_text(json.dumps(of_secret))), 1
            ):
                file.unlink()
                write()
                gateway.signal(signal.SIGHUP)
                await until(lambda n=number: gateway.read_stderr().count("it is a pipe, not a regular file") >= n)
            file.write_text(good)
            gateway.signal(signal.SIGHUP)
            await until(lambda: "configuration reloaded" in gateway.read_stderr())
            assert (await fetch(gateway)).payload == b"new"
            file.unlink()
            os.mkfifo(file)
            gateway.signal(signal.SIGHUP)
            gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 0


async def test_hanging_prompt_file_does_not_block_requests(tmp_path: Path) -> None:
    """Its file system does not answer: others are served meanwhile, and SIGTERM ends the gateway."""
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Be kind.")
    disk = Disk(prompt, tmp_path)
    async with FakeUpstream(serve(build_answer(200, b"new"))) as upstream:
        text = config(upstream.base_url, prompts={"default": {"file": str(prompt)}})
        async with GatewayProcess(text, env=disk.env) as gateway:
            disk.hang()
            gateway.signal(signal.SIGHUP)
            await until(lambda: disk.hung)
            assert (await fetch(gateway)).payload == b"new"
            gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 0


@pytest.mark.parametrize(("place", "is_device"), [("/dev/zero", True), ("pipe", False)])
def test_load_refuses_a_config_that_is_not_a_regular_file(place: str, is_device: bool, tmp_path: Path) -> None:
    """At once, with what it is."""
    path = Path(place) if is_device else tmp_path / place
    if not is_device:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"it is a {'device' if is_device else 'pipe'}, not a regular file"):
        load(path, environ={}, flags={})
