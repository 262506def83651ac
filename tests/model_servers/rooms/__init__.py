"""The rooms of the museum."""

from typing import Final

from tests.model_servers.room import Room

from .clouds import CLOUDS
from .desktops import DESKTOPS
from .engines import ENGINES
from .providers import PROVIDERS
from .routers import ROUTERS

#: By the kind of server, as the page shows them.
FAMILIES: Final = {
    "Engines that serve open models": ENGINES,
    "Programs for a desktop": DESKTOPS,
    "Clouds": CLOUDS,
    "Providers of models": PROVIDERS,
    "Routers": ROUTERS,
}
ROOMS: Final[tuple[Room, ...]] = tuple(room for family in FAMILIES.values() for room in family)
