"""Check the built site: each link leads to a page and an anchor of it, and nothing is loaded from other hosts."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_CSS_LOADS: Final = re.compile(r"""(?:@import|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """Collect the anchors, the links and the loaded files of one page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADED and values.get(_LOADED[tag]) and values.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(values[_LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return one line for each link that leads nowhere, and for each file that another host would serve."""
    pages = {file.resolve(): _Page(file) for file in site.rglob("*.html")}
    found = [] if pages else [f"{site}: there are no pages"]
    for file, page in pages.items():
        name = file.relative_to(site.resolve())
        found += [f"{name}: loads {url} from another host" for url in page.loads if urlsplit(url).netloc]
        for url in [*page.links, *page.loads]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or name.name == "404.html":
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name}: {url} leads to no file")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: {url} leads to no anchor")
    for style in site.rglob("*.css"):
        loads = _CSS_LOADS.findall(style.read_text(encoding="utf-8"))
        found += [f"{style.relative_to(site)}: loads {url} from another host" for url in loads]
    return found


if __name__ == "__main__":
    if lines := problems(Path(sys.argv[1])):
        sys.exit("\n".join(lines))
