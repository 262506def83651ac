"""Build the documentation site from the same files that a repository browser shows.

The pages link to each other and to files of the repository. On the site, a link to a page leads to that page, and a
link to any other file becomes the file's path as code. Pages from outside docs/ are listed in `PAGES`.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from properdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent.parent
#: Pages outside docs/, by their place in the repository, and their place on the site.
PAGES: Final = {
    "README.md": "about/readme.md",
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "RELEASING.md": "about/releasing.md",
    "CODE_OF_CONDUCT.md": "about/code-of-conduct.md",
    "SECURITY.md": "about/security.md",
    "deploy/README.md": "about/deploy.md",
    "bench/README.md": "about/bench.md",
}
_SOURCES: Final = {site: source for source, site in PAGES.items()}
_FENCE: Final = re.compile(r"^( *)```.*?^\1```[^\n]*$", re.MULTILINE | re.DOTALL)
_IMAGE: Final = re.compile(r"!\[([^\]]*)\]\(docs/([^)\s]+)\)")
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_CELL: Final = re.compile(r"<td.*?</td>", re.DOTALL)
_BREAKS: Final = re.compile(r"(?<=\w)([_,{/]|\.(?=\w{4}))(?=[^<>]*</code>)")
_NESTED: Final = re.compile(r"^( +)(?=[-*] |\d+\. )", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Make anchors as a repository browser makes them, so that one link serves both. List the decision records.

    The foot of each page names the version.
    """
    [version] = re.findall(r'^__version__ = "(.+)"$', (ROOT / "gateway/__init__.py").read_text(), re.MULTILINE)
    config.copyright = f"Twolane {version}"
    config.mdx_configs["toc"]["slugify"] = lambda text, separator: (
        re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", separator)
    )
    [decisions] = (part["Decisions"] for part in config.nav[-1]["Explanation"] if "Decisions" in part)
    decisions += [f"decisions/{record.name}" for record in sorted((ROOT / "docs/decisions").glob("0*.md"))]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/."""
    for source, site in PAGES.items():
        files.append(File.generated(config, site, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite what a repository browser and the site read differently: links, nested lists, pipes in code of tables."""
    site = page.file.src_uri
    source = _SOURCES.get(site, f"docs/{site}")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if there := _on_site(file):
            return f"[{text}]({posixpath.relpath(there, posixpath.dirname(site) or '.')}{anchor})"
        return f"`{file}`" if text.strip("`").rstrip("/") == file else f"{text} (`{file}`)"

    def image(match: re.Match[str]) -> str:
        return f"![{match[1]}]({posixpath.relpath(match[2], posixpath.dirname(site) or '.')})"

    def prose(text: str) -> str:
        text = _IMAGE.sub(image, text)
        text = _NESTED.sub(lambda match: match[1] * 2, text)
        return _LINK.sub(link, _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), text))

    return _outside_fences(markdown, prose)


def on_page_content(html: str, **_: Any) -> str:
    """Let long names in tables break behind `_`, `,`, `{`, `/` and a dot, and nowhere else."""
    return _CELL.sub(lambda cell: _BREAKS.sub(r"\1<wbr>", cell[0]), html)


def _on_site(file: str) -> str | None:
    """Return where the site has this file of the repository, or None."""
    if file in PAGES:
        return PAGES[file]
    return file.removeprefix("docs/") if file.startswith("docs/") and file.endswith(".md") else None


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])
