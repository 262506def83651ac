"""HTML as a browser reads it: the text of a page, its links, and its forms with what they would send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset(("area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"))
_HIDDEN: Final = frozenset(("script", "style", "template", "noscript"))
Attributes = Mapping[str, str]


@dataclass
class Element:
    """An element, its attributes and all that stands in it."""

    tag: str
    attributes: Attributes
    children: "list[Element | str]" = field(default_factory=list)

    @cached_property
    def below(self) -> "list[Element]":
        """The elements in this one, in their order."""
        elements = [child for child in self.children if isinstance(child, Element)]
        return [one for element in elements for one in (element, *element.below)]

    def all(self, tag: str = "", **attributes: str) -> "list[Element]":
        """Return the elements of a tag with these attributes. In a name `_` is `-`, and one at the end is dropped."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}.items()
        tagged = [one for one in self.below if one.tag == tag] if tag else self.below
        return [one for one in tagged if all(one.attributes.get(name) == value for name, value in wanted)]

    @property
    def raw_text(self) -> str:
        """The text of the element, with every space and line end that stands in it."""
        return "".join(child if isinstance(child, str) else child.raw_text for child in self.children)

    @property
    def text(self) -> str:
        """The text that a reader sees, spaces and line ends as one space each."""
        return " ".join(self._seen().split())

    def _seen(self) -> str:
        if self.tag in _HIDDEN or "hidden" in self.attributes:
            return ""
        return "".join(child if isinstance(child, str) else f" {child._seen()} " for child in self.children)

    @property
    def name(self) -> str:
        """The accessible name of a control: its label, or its text."""
        return self.attributes.get("aria-label") or self.text


@dataclass(frozen=True)
class Form:
    """A form: where its button sends it, and the fields that it sends if its reader changes nothing."""

    method: str
    action: str
    fields: Sequence[tuple[str, str]]
    controls: Sequence[str]


class _Reading(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read_html(text: str) -> Element:
    """The root of a document, or of a part of one; AssertionError for elements that are not closed in their order."""
    reading = _Reading()
    reading.feed(text)
    reading.close()
    assert reading._open == [reading.root], f"<{reading._open[-1].tag}> is not closed"
    return reading.root


def form_of(root: Element, button: Element, *, page: str) -> Form:
    """The form that this button sends. `page` is the address of its page."""
    form = _owner(root, button)
    controls = [
        one
        for one in root.below
        if one.tag in ("input", "select", "textarea") and _owner(root, one, or_none=True) is form
    ]
    named = [one for one in controls if one.attributes.get("name") and "disabled" not in one.attributes]
    fields = [(one.attributes["name"], value) for one in named for value in _values(one)]
    if button.attributes.get("name"):
        fields.append((button.attributes["name"], button.attributes.get("value", "")))
    action = button.attributes.get("formaction") or form.attributes.get("action") or page
    names = [one.attributes["name"] for one in named]
    return Form(form.attributes.get("method", "get").lower(), action, fields, names)


def buttons_of(root: Element) -> list[Element]:
    """The buttons that send a form."""
    found = [one for one in root.all("button") if one.attributes.get("type", "submit") == "submit"]
    return [one for one in found if _owner(root, one, or_none=True) is not None]


def _owner(root: Element, control: Element, *, or_none: bool = False) -> Element:
    named = control.attributes.get("form")
    for form in root.all("form"):
        if (form.attributes.get("id") == named) if named else any(one is control for one in form.below):
            return form
    assert or_none, f"{control.attributes} stands in no form"
    return None  # type: ignore[return-value]


def _values(control: Element) -> list[str]:
    attributes = control.attributes
    if control.tag == "textarea":
        return [control.raw_text.removeprefix("\n")]  # as the standard has it: the first line end is none of the text
    if control.tag == "select":
        options = control.all("option")
        chosen = [one for one in options if "selected" in one.attributes] or options[:1]
        return [one.attributes.get("value", one.text) for one in chosen]
    if attributes.get("type") in ("checkbox", "radio"):
        return [attributes.get("value", "on")] if "checked" in attributes else []
    return [] if attributes.get("type") in ("submit", "button", "reset") else [attributes.get("value", "")]
