"""The colours of a page: the reader's choice, else their system's. The server writes it, so nothing flashes."""

from typing import Final, Literal

Theme = Literal["light", "dark"]
#: The cookie of a reader who chose. It holds one of the themes.
COOKIE: Final = "twolane_theme"
#: The choice that leaves it to the system, and no cookie.
SYSTEM: Final = "system"
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")


def choose_theme(text: str | None) -> Theme | None:
    """Return the theme that a cookie or a form names, or None."""
    return next((theme for theme in THEMES if theme == text), None)
