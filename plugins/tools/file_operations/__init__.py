"""The tool `file_operations`: it reads, lists, finds and writes files beneath the operator's folders."""

import asyncio
import codecs
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, field_validator

from gateway.plugin import (
    Exchange,
    Host,
    Json,
    NoPreview,
    Plugin,
    Preview,
    Reach,
    ToolCall,
    ToolResult,
    ToolSpec,
    place_sha256,
)
from gateway.plugin.settings import FilePath, Flag, ToolConfig, build_count_type, build_size_type
from gateway.plugin.templates import Values, fill_object

from .folder import Content, Folder, FolderEntry
from .safe_open import PathRefusedError, split_components
from .workflow_path import build_path

T = TypeVar("T")

_DEFAULT_ROOT: Final = Path("work")
#: A NUL this early means that a file is not text.
_PROBE_BYTES: Final = 8192
_SHOWN_BYTES: Final = 16
#: Of a file before and after a write, for a person.
PREVIEW_BYTES: Final = 256 << 10


class Config(ToolConfig):
    """Reads, lists and writes files."""

    roots: tuple[FilePath, ...] = Field(
        default=(_DEFAULT_ROOT,), validate_default=True, description="Folders that the tool may see; they must exist."
    )
    write: Flag = Field(default=False, description="Allow writing at all.")
    max_read_bytes: Annotated[int, build_size_type(1, 1 << 30)] = Field(
        default=1 << 20, description="How much of a file is read."
    )
    max_write_bytes: Annotated[int, build_size_type(1, 1 << 30)] = Field(
        default=1 << 20, description="Largest file that is written."
    )
    max_entries: Annotated[int, build_count_type(1, 1_000_000)] = Field(
        default=1000, description="How many entries of a folder are listed."
    )

    @field_validator("roots")
    @classmethod
    def _require_root(cls, roots: tuple[Path, ...]) -> tuple[Path, ...]:
        if not roots:
            raise ValueError("expected at least one folder")
        return roots


class FileOperations:
    """The source of this tool: it runs each operation in a thread.

    A cancelled write has happened whole or not at all. The thread of a cancelled call goes on for a moment,
    perhaps with a file open: `close` waits for its end.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._folders = tuple((str(root), _open_folder(root)) for root in config.roots)
        self._threads: set[asyncio.Future[Any]] = set()

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_build_spec(self._config),)

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:  # noqa: ARG002 (the contract's signature)
        stop = threading.Event()
        try:
            return await self._run(self._run_operation, call.arguments, stop)
        except asyncio.CancelledError:
            stop.set()
            raise

    def bind(self, arguments: Json, values: Values) -> Json:
        """Put values into the path: a value stays below the place of its reference. See `Binder`."""
        return fill_object(arguments, values, writers={"path": build_path})

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 (as for `call`)
        """Return why the call cannot run: a path outside or through a link, or writing where it is off.

        No approval is requested for such a call.
        """
        return await self._run(self._find_refusal, call.arguments)

    async def preview(self, call: ToolCall) -> Preview | NoPreview:
        """Return the text of the file that a write replaces, and the text after it."""
        return await self._run(self._preview, call.arguments)

    async def close(self) -> None:
        """Wait for the threads of cancelled calls, which may have a file open."""
        await asyncio.gather(*self._threads, return_exceptions=True)

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        """Run work in a thread, which outlives the cancellation of its call."""
        thread = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
        self._threads.add(thread)
        thread.add_done_callback(self._threads.discard)
        return await asyncio.shield(thread)

    def _preview(self, arguments: Json) -> Preview | NoPreview:
        try:
            operation, path = self._parse_arguments(arguments)
            if operation != "write":
                return NoPreview(f"The operation {operation!r} changes nothing.")
            if problem := self._find_write_obstacle(arguments):
                return NoPreview(f"The call cannot run: {problem}.")
            folder, names = self._find_target(path)
            return _build_preview(folder, names, path, arguments["content"])
        except (PathRefusedError, OSError) as error:
            return NoPreview(f"The call cannot run: {_format_reason(error)}.")

    def _find_refusal(self, arguments: Json) -> str | None:
        try:
            operation, path = self._parse_arguments(arguments)
            if operation != "write":
                self._find_entry(path)
                return None
            for folder, names in self._list_candidates(path):
                folder.find(names)
        except (PathRefusedError, OSError) as error:
            return _format_reason(error)
        return self._find_write_obstacle(arguments)

    def _run_operation(self, arguments: Json, stop: threading.Event) -> ToolResult:
        try:
            operation, path = self._parse_arguments(arguments)
            if operation == "write":
                if problem := self._find_write_obstacle(arguments):
                    return ToolResult(problem, ok=False)
                return self._write(path, arguments["content"], stop)
            folder, names, found = self._find_entry(path)
            if operation == "exists":
                return ToolResult(f"{path!r}: {_describe_entry(found) if found else 'does not exist'}")
            if found is None and (names or operation == "read"):
                return ToolResult(f"{path!r}: no such file or folder", ok=False)
            if operation == "read":
                return ToolResult(_format_content(folder.read(names, limit_bytes=self._config.max_read_bytes)))
            return ToolResult(_format_listing(*folder.list_entries(names, limit=self._config.max_entries)))
        except (PathRefusedError, OSError) as error:
            return ToolResult(_format_reason(error), ok=False)

    def _parse_arguments(self, arguments: Json) -> tuple[str, str]:
        operation, path = arguments.get("operation"), arguments.get("path")
        if operation not in _list_operations(self._config):
            raise PathRefusedError(f"'operation' must be one of {', '.join(_list_operations(self._config))}")
        if not isinstance(path, str) or not path:
            raise PathRefusedError("'path' must be a text such as 'notes/today.txt'")
        return str(operation), path

    def _find_write_obstacle(self, arguments: Json) -> str | None:
        content, limit_bytes = arguments.get("content"), self._config.max_write_bytes
        if not isinstance(content, str):
            return "'content' must be a text: what the file is to contain"
        try:
            size_bytes = len(content.encode())
        except UnicodeEncodeError:
            return "'content' is not valid text: it holds half of a surrogate pair"
        if size_bytes > limit_bytes:
            return f"too large: {size_bytes} bytes, at most {limit_bytes} can be written"
        return None

    def _find_target(self, path: str) -> tuple[Folder, tuple[str, ...]]:
        """Return where a write puts its file."""
        candidates = self._list_candidates(path)
        # A file that is there is replaced; a new one goes where the path leads, or beneath the first root.
        existing = [(folder, names) for folder, names in candidates if folder.find(names) is not None]
        spelled = candidates[len(self._folders) :] if not path.startswith("/") else []
        return (existing or spelled or candidates)[0]

    def _write(self, path: str, content: str, stop: threading.Event) -> ToolResult:
        folder, names = self._find_target(path)
        data = content.encode()
        created = folder.write(names, data, stopped=stop.is_set)
        return ToolResult(f"{'wrote' if created else 'replaced'} {path!r}: {len(data)} bytes")

    def _find_entry(self, path: str) -> tuple[Folder, tuple[str, ...], FolderEntry | None]:
        candidates = self._list_candidates(path)
        for folder, names in candidates:
            if (found := folder.find(names)) is not None:
                return folder, names, found
        return (*candidates[0], None)

    def _list_candidates(self, path: str) -> list[tuple[Folder, tuple[str, ...]]]:
        """Return the places that `path` may mean.

        It may lie beneath each root. If it begins with a root's own spelling, it may lie beneath that. Raises
        RefusedError if it is outside all folders.
        """
        found = []
        if not path.startswith("/"):
            names = split_components(path)
            found = [(folder, names) for _, folder in self._folders]
        for root, folder in self._folders:
            for spelling in dict.fromkeys((root.rstrip("/"), str(folder.path))):
                if spelling not in ("", ".") and (path == spelling or path.startswith(f"{spelling}/")):
                    found.append((folder, split_components(path[len(spelling) :].lstrip("/"))))
        if not found:
            raise PathRefusedError("the path is outside the folders of this tool: use one like 'notes/today.txt'")
        return found


def build(config: Config, host: Host) -> FileOperations:  # noqa: ARG001 (the contract's signature)
    return FileOperations(config)


def reaches(config: Config) -> Sequence[Reach]:
    return [
        Reach(key=("roots", i), place=root, kind="folder", writable=config.write) for i, root in enumerate(config.roots)
    ]


PLUGIN = Plugin(Config, build, assessor="file", reaches=reaches, anywhere={"roots": [str(Path(__file__).parent)]})


def _open_folder(root: Path) -> Folder:
    path = Path(os.path.abspath(root))  # noqa: PTH100 (resolve() would follow links, and hide how it was spelled)
    may_make = root == _DEFAULT_ROOT
    if not path.is_dir() and not (may_make and not path.exists()):
        raise ValueError(f"file_operations.roots: no folder {str(path)!r}: make it with mkdir, or name another")
    return Folder(path, may_make=may_make)


def _list_operations(config: Config) -> tuple[str, ...]:
    return ("read", "list", "exists", "write") if config.write else ("read", "list", "exists")


def _build_spec(config: Config) -> ToolSpec:
    several = f" The folders are {', '.join(map(str, config.roots))}." if len(config.roots) > 1 else ""
    properties: Json = {
        "operation": {"type": "string", "enum": list(_list_operations(config)), "description": "What to do."},
        "path": {"type": "string", "description": "A relative path such as 'notes/today.txt'; '.' is the folder."},
    }
    if config.write:
        properties["content"] = {"type": "string", "description": "For write: the whole new text of the file."}
    return ToolSpec(
        name="file_operations",
        description=f"Works with the text files of a folder: {', '.join(_list_operations(config))}.{several}",
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["operation", "path"],
            "additionalProperties": False,
        },
        category="files",
        untrusted=config.untrusted,
        requires_approval=config.requires_approval,
        server=place_sha256(*(root.absolute() for root in config.roots)),
    )


def _build_preview(folder: Folder, names: Sequence[str], path: str, after: str) -> Preview | NoPreview:
    """Return the preview of a write, or why there is none. Raises RefusedError, OSError."""
    if len(after.encode()) > PREVIEW_BYTES:
        return NoPreview(f"The new text is larger than {PREVIEW_BYTES} bytes.")
    if folder.find(names) is None:
        return Preview(before=None, after=after, label=path)
    content = folder.read(names, limit_bytes=PREVIEW_BYTES + 1)
    if len(content.data) > PREVIEW_BYTES:
        return NoPreview(f"The file has {content.size_bytes} bytes: at most {PREVIEW_BYTES} are shown.")
    try:
        before = content.data.decode()
    except UnicodeDecodeError:
        before = "\0"
    if "\0" in before:
        return NoPreview(f"The file is binary: it has {content.size_bytes} bytes.")
    return Preview(before=before, after=after, label=path)


def _format_content(content: Content) -> str:
    if b"\0" in content.data[:_PROBE_BYTES]:
        return f"a binary file of {content.size_bytes} bytes that begins with {content.data[:_SHOWN_BYTES].hex(' ')}"
    whole = len(content.data) >= content.size_bytes
    text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(content.data, final=whole)
    if whole:
        return text
    return f"{text}\n[... the file has {content.size_bytes} bytes; these were the first {len(content.data)} ...]"


def _format_listing(entries: Sequence[FolderEntry], count: int) -> str:
    lines = [_format_line(entry) for entry in entries]
    if count > len(entries):
        lines.append(f"[... {count} entries; these were the first {len(entries)} ...]")
    return "\n".join(lines) or "(empty)"


def _format_line(entry: FolderEntry) -> str:
    name = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in entry.name)
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name}  ({_describe_entry(entry)})"


def _describe_entry(entry: FolderEntry) -> str:
    if entry.kind == "file":
        return f"file, {entry.size_bytes} bytes"
    return {"folder": "folder", "link": "link, not followed"}.get(entry.kind, "no ordinary file")


def _format_reason(error: PathRefusedError | OSError) -> str:
    if isinstance(error, PathRefusedError):
        return f"refused: {error}"
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    return f"failed: {error.strerror or 'the system refused'}"
