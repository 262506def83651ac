"""Secrets that come from files."""

import os

import pytest
from config.folder import Folder

from gateway.config import Secret
from gateway.config.reading.secret_files import SECRETS_WITH_FILES, find_companion
from gateway.config.schema.section import find_type, is_section, strip
from gateway.config.schema.settings import Settings
from gateway.config.schema.tools import find_built_in_settings
from gateway.plugins import list_built_in_plugins

FILE = """\
store_file: run/store
upstreams: [{name: a, base_url: "http://a", api_key_file: run/key}]
approvals: {notify: [{webhook_file: run/hook, secret_file: run/signs}]}
tools: {execute_sql: {url_file: run/store}}
mcp:
  servers:
    m: {url_file: run/hook, headers: {Authorization_file: run/bearer, X-A: b}}
    o: {url: "http://o", oauth: {issuer: "http://i", client_id: c, client_secret_file: run/key}}
"""


def test_every_secret_can_come_from_a_file(folder: Folder) -> None:
    """Relative to the configuration; line ends at the end are dropped, nothing else."""
    for name, content in {
        "store": "postgresql://u:p@h/d\n",
        "key": "sk-1\r\n",
        "hook": "https://h/x\n\n",
        "signs": " s ",
        "bearer": "Bearer x",
    }.items():
        folder.write(f"run/{name}", content)
    settings = folder.load(FILE).settings
    assert settings.store == Secret("postgresql://u:p@h/d")
    assert settings.upstreams[0].api_key == Secret("sk-1")
    notify, server = settings.approvals.notify[0], settings.mcp.servers["m"]
    assert (notify.webhook, notify.secret) == (Secret("https://h/x"), Secret(" s "))
    assert settings.tools.built_in["execute_sql"].url == settings.store  # type: ignore[attr-defined]  # as its plugin declares
    assert server.url == Secret("https://h/x")
    assert server.headers == {"Authorization": Secret("Bearer x"), "X-A": Secret("b")}
    oauth = settings.mcp.servers["o"].oauth
    assert oauth is not None and oauth.client_secret == Secret("sk-1")
    assert "sk-1" not in repr(settings)


def test_secret_file_list_matches_the_settings_models() -> None:
    """The list of secrets and the keys of the models that end in `_file` are the same."""
    for pattern in SECRETS_WITH_FILES:
        path = tuple(0 if part == "*" and pattern[0] != "mcp" else part for part in pattern)
        assert find_type(Settings, path) is not None
        assert find_type(Settings, (*path[:-1], f"{path[-1]}_file")) is not None

    def companions(section: object, depth: int = 0) -> int:
        inner = strip(section)
        if not is_section(inner) or depth > 3:
            return 0
        own = sum(f"{name}_file" in inner.model_fields for name in inner.model_fields)
        return own + sum(companions(field.annotation, depth + 1) for field in inner.model_fields.values())

    of_tools = sum(companions(find_built_in_settings(name), 3) for name in list_built_in_plugins("tools"))
    named = sum(1 for pattern in SECRETS_WITH_FILES if "*" not in pattern)
    assert (companions(Settings), of_tools) == (named, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read '{path}': No such file or directory"),
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"can\xffary", "'{path}' is not UTF-8 at byte 3: save it as UTF-8"),
        (b"c" * 70_000, "'{path}' is larger than 65536 bytes"),
    ],
)
def test_a_file_without_a_secret_is_reported(folder: Folder, content: bytes | None, message: str) -> None:
    """Once, at its place, and without what is in it."""
    if content is not None:
        folder.write("key", content)
    problem = folder.problem("upstreams:\n  - {name: a, base_url: 'http://a', api_key_file: key}")
    place = "gateway.yaml:2:51 upstreams[0].api_key_file: "
    assert problem == place + message.format(path=folder.path / "key")


def test_malformed_secret_in_a_file_is_reported_without_its_value(folder: Folder) -> None:
    """At the place of the `*_file` key."""
    folder.write("key", "can ary")
    problem = folder.problem('upstreams:\n  - {name: a, base_url: "http://a", api_key_file: key}')
    assert problem.startswith("gateway.yaml:2:51 upstreams[0].api_key: a key has only visible ASCII")
    assert "can ary" not in problem


def test_a_secret_and_its_file_together_are_refused(folder: Folder) -> None:
    """One of them would be ignored."""
    folder.write("key", "x")
    problem = folder.problem("store: sqlite:///a\nstore_file: key\n")
    assert problem == "gateway.yaml:2:1 store_file: 'store' is given as well: keep one of the two"


def test_a_file_that_may_not_be_read_is_reported(folder: Folder) -> None:
    """With the system's reason; a folder is no file."""
    path = folder.write("key", "x")
    path.chmod(0)
    reason = "Permission denied" if os.geteuid() else None
    if reason:
        assert reason in folder.problem("store_file: key")
    assert "Is a directory" in folder.problem("store_file: .")


def test_secret_keys_and_file_keys_resolve_to_each_other() -> None:
    """In both directions, and only where there is one."""
    assert find_companion(("upstreams", 3, "api_key")) == ("upstreams", 3, "api_key_file")
    assert find_companion(("upstreams", 3, "api_key_file")) == ("upstreams", 3, "api_key")
    assert find_companion(("store",)) == ("store_file",)
    for path in (("upstreams", 3, "name"), ("tools", "x"), ("prompts", "p", "file"), ("listen",)):
        assert find_companion(path) is None
