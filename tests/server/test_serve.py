"""`gateway run` from outside: what it says, and what it says when it cannot."""

from pathlib import Path

from gateways import config, ended, fetch

from gateway.testing.ports import free_port
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess


async def test_banner_shows_addresses_and_hides_keys(tmp_path: Path) -> None:
    """Both base URLs, file, upstreams, tools, store, metrics, how to stop; the key of an upstream is not shown."""
    async with FakeUpstream() as upstream:
        more = {"tools": {"http_request": {}}, "store": f"sqlite:///{tmp_path}/kept.db"}
        text = config(upstream.base_url, upstream={"api_key": "sk-not-for-everybody"}, **more)
        async with GatewayProcess(text) as gateway:
            await fetch(gateway)
    lines = gateway.read_stdout().splitlines()
    assert lines[0].startswith("Twolane ") and lines[0].endswith(" is ready.")
    assert f"  base URL    {gateway.base_url}/v1" in lines
    assert f"  context     {gateway.base_url}/context/v1" in lines
    assert any(line.startswith("  config      /") and line.endswith("gateway.yaml") for line in lines)
    assert "  tools       http_request" in lines
    assert f"  store       sqlite:///{tmp_path}/kept.db" in lines
    assert f"  upstreams   up ({upstream.base_url})" in lines
    assert f"  metrics     {gateway.base_url}/metrics" in lines
    assert f"(process {gateway.pid})" in lines[-1]
    assert "sk-not-for-everybody" not in gateway.read_stdout() + gateway.read_stderr()


async def test_without_upstreams_the_demo_model_answers() -> None:
    """The banner says so, and the base URL works at once."""
    async with GatewayProcess("") as gateway:
        models = await fetch(gateway, b"/v1/models")
    assert models.status == 200 and b'"data"' in models.payload
    assert "demo model" in gateway.read_stdout()


async def test_address_in_use_is_reported_in_one_line() -> None:
    """Exit code 1, with the ways out; the gateway that is there does not notice."""
    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url)) as gateway:
        code, out, err = await ended("run", "--port", str(gateway.port), "--workers", "2")
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert f"127.0.0.1:{gateway.port}" in err and "Address already in use" in err and "--port" in err
        assert (await fetch(gateway)).status == 200


async def test_admin_address_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    """As for `listen`."""
    async with FakeUpstream() as upstream:
        file = tmp_path / "gateway.yaml"
        file.write_text(config(upstream.base_url, admin={"listen": f"127.0.0.1:{upstream.port}"}))
        code, _, err = await ended("run", "-c", str(file), "--port", str(free_port()))
    assert (code, len(err.splitlines())) == (1, 1) and f"127.0.0.1:{upstream.port}" in err


async def test_unusable_tls_file_is_reported_in_one_line(tmp_path: Path) -> None:
    """Exit code 1, with the place in the configuration, before anything listens."""
    file, certificates = tmp_path / "gateway.yaml", tmp_path / "ca.pem"
    certificates.write_text("no certificate")
    file.write_text(config("https://127.0.0.1:1", upstream={"tls": {"ca_file": str(certificates)}}))
    code, out, err = await ended("run", "-c", str(file), "--port", "0", "--workers", "2")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "upstreams[0].tls" in err and "Traceback" not in err


async def test_temporary_folder_is_empty_after_shutdown(tmp_path: Path) -> None:
    """What workers exchange their metrics through is gone with them."""
    async with FakeUpstream() as upstream:
        running = GatewayProcess(config(upstream.base_url, workers=2), env={"TMPDIR": str(tmp_path)})
        async with running as gateway:
            await fetch(gateway, b"/metrics")
            assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())
