"""The tool `file_operations` as the agent loop calls it, with real folders."""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import NoPreview, Preview, Previewer, ToolCall, ToolResult
from gateway.plugins.tools.file_operations import PLUGIN, PREVIEW_BYTES, Config, FileOperations
from tests.sandbox.machine import exchanging

EXCHANGE = Exchange(id="1", body={}, caller=Caller("a", "a", frozenset()), chain="assistant")


def call_of(arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(id="c1", tool="file_operations", arguments=dict(arguments))


async def ask(tool: FileOperations, **arguments: Any) -> ToolResult:
    return await tool.call(call_of(arguments), EXCHANGE)


def built(*roots: Path, **settings_of_the_tool: Any) -> FileOperations:
    # Nothing of the host is used.
    config = Config(roots=tuple(str(root) for root in roots), **settings_of_the_tool)
    return PLUGIN.build(config, None)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "a.txt").write_text("grüße")
    (tmp_path / "secret").write_text("SECRET")
    return folder


async def test_file_tool_spec_offers_write_only_when_enabled(root: Path) -> None:
    """One tool; writing is offered only where it is allowed."""
    (reader,) = await built(root).list_tools()
    (writer,) = await built(root, write=True, requires_approval=True, untrusted=True).list_tools()
    assert (reader.name, reader.category) == ("file_operations", "files")
    assert reader.parameters["properties"]["operation"]["enum"] == ["read", "list", "exists"]
    assert "content" not in reader.parameters["properties"]
    assert writer.parameters["properties"]["operation"]["enum"] == ["read", "list", "exists", "write"]
    assert (writer.requires_approval, writer.untrusted) == (True, True)
    assert str(root) not in reader.description


async def test_file_tool_reads_lists_and_checks_existence(root: Path) -> None:
    """The three questions, and their answers for what is missing."""
    tool = built(root)
    assert await ask(tool, operation="read", path="notes/a.txt") == ToolResult("grüße")
    assert await ask(tool, operation="list", path=".") == ToolResult("notes/")
    assert await ask(tool, operation="list", path="notes") == ToolResult("a.txt  (file, 7 bytes)")
    assert await ask(tool, operation="exists", path="notes/a.txt") == ToolResult("'notes/a.txt': file, 7 bytes")
    assert await ask(tool, operation="exists", path="notes") == ToolResult("'notes': folder")
    assert await ask(tool, operation="exists", path="no") == ToolResult("'no': does not exist")
    for operation in ("read", "list"):
        missing = await ask(tool, operation=operation, path="no")
        assert missing == ToolResult("'no': no such file or folder", ok=False)
    assert (await ask(tool, operation="read", path="notes")).content == "refused: that is a folder, not a file"
    assert (await ask(tool, operation="list", path="notes/a.txt")).ok is False


async def test_write_creates_and_replaces_a_file(root: Path) -> None:
    """A new file with its folders, then another text in its place."""
    tool = built(root, write=True)
    assert await ask(tool, operation="write", path="new/b.txt", content="é") == ToolResult("wrote 'new/b.txt': 2 bytes")
    assert (root / "new" / "b.txt").read_text() == "é"
    assert (await ask(tool, operation="write", path="new/b.txt", content="")).content == "replaced 'new/b.txt': 0 bytes"
    assert (root / "new" / "b.txt").read_text() == ""


async def test_write_is_refused_when_disabled(root: Path) -> None:
    """Before anybody is asked, too."""
    tool = built(root)
    arguments = {"operation": "write", "path": "x", "content": "x"}
    answer = await ask(tool, **arguments)
    assert answer == ToolResult("refused: 'operation' must be one of read, list, exists", ok=False)
    assert await tool.refusal(call_of(arguments), EXCHANGE) == answer.content
    assert not (root / "x").exists()


@pytest.mark.parametrize("operation", ["read", "list", "exists", "write"])
@pytest.mark.parametrize(
    ("existing", "missing"),
    [
        ("../secret", "../nothing"),
        ("notes/../../secret", "notes/../../nothing"),
        ("/etc/passwd", "/etc/nothing"),
        ("//etc/passwd", "//etc/nothing"),
        ("%2e%2e/secret", "%2e%2e/nothing"),
        ("..\\secret", "..\\nothing"),
        ("notes\0/a.txt", "x\0"),
        ("~/x", "~nobody/x"),
        ("$HOME/x", "$NOTHING/x"),
        ("file:///etc/passwd", "file:///etc/nothing"),
        ("link-to-secret", "link-to-nothing"),
        ("link-out/secret", "link-out/nothing"),
        ("chain50", "chain50/x"),
        ("x" * 5000, "y" * 5000),
    ],
)
async def test_paths_outside_the_root_are_refused_with_identical_text(
    existing: str, missing: str, operation: str, root: Path
) -> None:
    """T1, T2: in every spelling and through every link, in the same words, before anybody is asked."""
    (root / "link-to-secret").symlink_to("../secret")
    (root / "link-to-nothing").symlink_to("../nothing")
    (root / "link-out").symlink_to("..")
    (root / "chain0").symlink_to("..")
    for number in range(50):
        (root / f"chain{number + 1}").symlink_to(f"chain{number}")
    tool = built(root, write=True)
    answers = []
    for path in (existing, missing):
        arguments = {"operation": operation, "path": path, "content": "PLANTED"}
        answers.append(await ask(tool, **arguments))
        assert await tool.refusal(call_of(arguments), EXCHANGE) == answers[-1].content
    assert answers[0] == answers[1]
    assert answers[0].ok is False and answers[0].content.startswith("refused: ")
    assert "SECRET" not in answers[0].content
    assert (root.parent / "secret").read_text() == "SECRET"
    assert sorted(path.name for path in root.parent.iterdir()) == ["root", "secret"]


async def test_links_are_listed_but_not_followed(root: Path) -> None:
    """A folder may hold them."""
    (root / "link").symlink_to("notes")
    answer = await ask(built(root), operation="list", path=".")
    assert answer.content.splitlines() == ["link  (link, not followed)", "notes/"]


async def test_read_refuses_a_pipe_without_blocking(root: Path) -> None:
    """A pipe without a writer does not hold anybody up."""
    os.mkfifo(root / "pipe")
    async with asyncio.timeout(120):
        answer = await ask(built(root), operation="read", path="pipe")
    assert answer == ToolResult("refused: that is not an ordinary file", ok=False)


async def test_large_files_are_read_up_to_a_limit(root: Path) -> None:
    """In whole characters, with a note."""
    (root / "large").write_text("ü" * 100)
    answer = await ask(built(root, max_read_bytes=5), operation="read", path="large")
    assert answer.content == "üü\n[... the file has 200 bytes; these were the first 5 ...]"


async def test_binary_file_is_described_and_invalid_utf_8_replaced(root: Path) -> None:
    """A NUL says so; bytes that are not UTF-8 are replaced."""
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    (root / "latin").write_bytes(b"gr\xfc\xdfe")
    tool = built(root)
    binary = await ask(tool, operation="read", path="binary")
    assert binary.content == "a binary file of 6 bytes that begins with 7f 45 4c 46 00 00"
    assert (await ask(tool, operation="read", path="latin")).content == "gr\ufffd\ufffde"


async def test_long_folders_are_listed_up_to_a_limit(root: Path) -> None:
    """With how many entries there are."""
    for number in range(20):
        (root / "notes" / f"{number:02}").touch()
    answer = await ask(built(root, max_entries=1), operation="list", path="notes")
    assert answer.content == "00  (file, 0 bytes)\n[... 21 entries; these were the first 1 ...]"


async def test_listing_escapes_line_breaks_in_file_names(root: Path) -> None:
    """Line ends and undecodable bytes in a name are spelled out."""
    (root / "a\nb/").mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).touch()
    answer = await ask(built(root), operation="list", path=".")
    assert answer.content.splitlines() == ["a\\nb/", "notes/", "\\udcff  (file, 0 bytes)"]


async def test_write_larger_than_max_write_bytes_is_refused(root: Path) -> None:
    """Measured in bytes; nothing is begun."""
    tool = built(root, write=True, max_write_bytes=3)
    arguments = {"operation": "write", "path": "x", "content": "üü"}
    answer = await ask(tool, **arguments)
    assert answer == ToolResult("too large: 4 bytes, at most 3 can be written", ok=False)
    assert await tool.refusal(call_of(arguments), EXCHANGE) == answer.content
    assert not (root / "x").exists()


async def test_a_cancelled_write_happens_wholly_or_not_at_all(root: Path) -> None:
    """And leaves no temporary file."""
    tool = built(root, write=True, max_write_bytes=1 << 23)
    old, new = "o" * (1 << 20), "n" * (1 << 22)
    (root / "x").write_text(old)
    for delay_s in (0.0, 0.001, 0.005):
        threads = ThreadPoolExecutor()
        asyncio.get_running_loop().set_default_executor(threads)
        writing = asyncio.create_task(ask(tool, operation="write", path="x", content=new))
        await asyncio.sleep(delay_s)  # the moment is the case
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        threads.shutdown()
        assert (root / "x").read_text() in (old, new)
        assert sorted(path.name for path in root.iterdir()) == ["notes", "x"]


async def test_relative_path_is_searched_in_each_configured_folder(tmp_path: Path) -> None:
    """A relative path is looked for in each; one that begins with a folder's own name means that folder."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (two / "b").write_text("second")
    tool = built(one, two, write=True)
    assert (await ask(tool, operation="read", path="b")).content == "second"
    assert (await ask(tool, operation="read", path=f"{two}/b")).content == "second"
    assert (await ask(tool, operation="read", path=f"{one}/../two/b")).ok is False
    assert (await ask(tool, operation="exists", path=f"{tmp_path}/two2/b")).ok is False
    await ask(tool, operation="write", path="new", content="n")
    await ask(tool, operation="write", path="b", content="again")
    await ask(tool, operation="write", path=f"{two}/other", content="o")
    assert [p.name for p in one.iterdir()] == ["new"]
    assert {p.name: p.read_text() for p in two.iterdir()} == {"b": "again", "other": "o"}
    (spec,) = await tool.list_tools()
    assert f"{one}, {two}" in spec.description


async def test_refusal_accepts_calls_that_an_approver_may_judge(tmp_path: Path) -> None:
    """What is there, what is not there yet, and what is read before a link in another folder would be reached."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (one / "a").write_text("first")
    (two / "a").symlink_to("/etc/passwd")
    tool = built(one, two, write=True)
    for arguments in (
        {"operation": "read", "path": "a"},
        {"operation": "exists", "path": "nothing"},
        {"operation": "write", "path": "new/b", "content": "x"},
    ):
        assert await tool.refusal(call_of(arguments), EXCHANGE) is None
        assert (await ask(tool, **arguments)).ok
    assert "through a link" in str(
        await tool.refusal(call_of({"operation": "write", "path": "a", "content": "x"}), EXCHANGE)
    )


async def test_the_default_folder_is_made_by_the_first_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it is empty; a path may begin with its name."""
    monkeypatch.chdir(tmp_path)
    tool = PLUGIN.build(Config(write=True), None)  # type: ignore[arg-type]
    assert await ask(tool, operation="list", path=".") == ToolResult("(empty)")
    assert (await ask(tool, operation="read", path="x")).ok is False
    assert list(tmp_path.iterdir()) == []
    assert (await ask(tool, operation="write", path="work/x", content="x")).ok is True
    assert (tmp_path / "work" / "x").read_text() == "x"
    assert (await ask(tool, operation="read", path="work/x")) == ToolResult("x")


def test_configured_root_that_is_missing_fails_the_build(tmp_path: Path) -> None:
    """A typing error is told when the gateway starts, with the name."""
    with pytest.raises(ValueError, match=r"file_operations\.roots: no folder '.*typo'"):
        built(tmp_path / "typo")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="no folder"):
        built(tmp_path / "file")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"operation": "read"},
        {"operation": "read", "path": None},
        {"operation": "read", "path": {"$gt": ""}},
        {"operation": "read", "path": ""},
        {"operation": "delete", "path": "notes/a.txt"},
        {"operation": ["read"], "path": "x"},
        {"operation": "READ", "path": "x"},
        {"operation": "write", "path": "x"},
        {"operation": "write", "path": "x", "content": 1},
        {"operation": "write", "path": "x", "content": "\ud800"},
        {"operation": "write", "path": ".", "content": "x"},
        {"operation": "write", "path": "notes", "content": "x"},
        {"operation": "write", "path": "notes/a.txt/x", "content": "x"},
        {"operation": "read", "path": "\ud800"},
    ],
)
async def test_wrong_arguments_return_a_failed_result(arguments: dict[str, Any], root: Path) -> None:
    """T25: as results, never as exceptions."""
    answer = await ask(built(root, write=True), **arguments)
    assert answer.ok is False and answer.content


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(arguments=st.dictionaries(st.sampled_from(["operation", "path", "content", "x"]), JSON))
async def test_file_tool_returns_a_result_for_any_arguments(arguments: dict[str, Any], root: Path) -> None:
    """Whatever a model makes up."""
    assert isinstance(await ask(built(root, write=True), **arguments), ToolResult)


async def test_file_tool_stays_inside_the_root_during_symlink_races(root: Path) -> None:
    """T2: while a folder changes into a link to the outside and back."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("SECRET")
    (root / "link").symlink_to(outside)
    tool = built(root, write=True)
    with exchanging(root / "notes", root / "link"):
        answers = [await ask(tool, operation="read", path="notes/a.txt") for _ in range(1500)]
        for number in range(500):
            await ask(tool, operation="write", path=f"notes/w{number}", content="PLANTED")
    assert all("SECRET" not in answer.content for answer in answers)
    assert [path.name for path in outside.iterdir()] == ["a.txt"]


def test_workflow_value_that_climbs_out_of_its_path_fails_the_step(root: Path) -> None:
    """One that climbs ends the step, though the tool's folder would hold it."""
    tool, template = built(root), {"operation": "read", "path": "reports/{{params.x}}.md"}
    assert tool.bind(template, {"params": {"x": "2024/may"}})["path"] == "reports/2024/may.md"
    with pytest.raises(ValueError, match=r"\{\{params\.x\}\} leads out"):
        tool.bind(template, {"params": {"x": "../secret/key"}})
    assert tool.bind(template | {"path": "{{params.x}}"}, {"params": {"x": "../a"}})["path"] == "../a"


async def preview(tool: FileOperations, **arguments: Any) -> Preview | NoPreview:
    return await tool.preview(call_of(arguments))


async def refused_preview(tool: FileOperations, **arguments: Any) -> str:
    found = await preview(tool, **{"operation": "write", "content": "x", **arguments})
    assert isinstance(found, NoPreview)
    return found.reason


async def test_preview_of_a_write_returns_old_and_new_text_unwritten(root: Path) -> None:
    """The text of the file as it is and as it will be; nothing is written, no folder made."""
    tool = built(root, write=True)
    assert isinstance(tool, Previewer)
    there = await preview(tool, operation="write", path="notes/a.txt", content="neu")
    assert there == Preview(before="grüße", after="neu", label="notes/a.txt")
    new = await preview(tool, operation="write", path="new/b.txt", content="x")
    assert new == Preview(before=None, after="x", label="new/b.txt")
    assert (root / "notes" / "a.txt").read_text() == "grüße" and not (root / "new").exists()


async def test_preview_refuses_paths_outside_the_folders_of_the_tool(root: Path, tmp_path: Path) -> None:
    """Nothing outside of its folders, through a link, or where writing is off."""
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    tool = built(root, write=True)
    for path in ("../secret", str(tmp_path / "secret"), "link", "out/secret", "notes", "pipe", ""):
        reason = await refused_preview(tool, path=path)
        assert "cannot run" in reason and "SECRET" not in reason
    assert "cannot run" in await refused_preview(built(root), path="notes/a.txt")
    assert "changes nothing" in await refused_preview(tool, operation="read", path="notes/a.txt")


async def test_preview_refuses_binary_and_oversized_content(root: Path) -> None:
    """With the reason for a person."""
    tool = built(root, write=True)
    for name, data in (("nul", b"a\0b"), ("latin", b"\xff"), ("cut", "é".encode()[:1])):
        (root / name).write_bytes(data)
        assert "binary" in await refused_preview(tool, path=name)
    (root / "large").write_bytes(b"x" * (PREVIEW_BYTES + 1))
    assert "262145 bytes" in await refused_preview(tool, path="large")
    (root / "large").write_bytes(b"x" * PREVIEW_BYTES)
    assert isinstance(await preview(tool, operation="write", path="large", content="y"), Preview)
    assert "larger" in await refused_preview(tool, path="large", content="x" * (PREVIEW_BYTES + 1))
    assert "surrogate" in await refused_preview(tool, path="large", content="\ud800")
