"""The store of a configuration: the scheme of its URL is the name of its plugin."""

from pathlib import Path

from gateway.config.schema.settings import SCRATCH_STORE, Settings
from gateway.contracts.storage.store import Store, StoreAddress
from gateway.plugins import list_built_in_plugins
from gateway.registry.loader import PluginProblem, build_plugin, find_plugin


def resolve_store(url: str, *, folder: Path, plugins: Path | None) -> tuple[str, StoreAddress]:
    """Return the name of the plugin of a store, and the address. A relative file begins at `folder`.

    Raises PluginProblem, which shows only the scheme.
    """
    scheme = url.partition(":")[0]
    try:
        address = find_plugin("stores", scheme, folder=plugins).address
    except PluginProblem as problem:
        known = ", ".join(f"{name}://" for name in list_built_in_plugins("stores"))
        raise PluginProblem((), f"{problem.message}; stores that come with the gateway: {known}") from None
    if address is None:
        raise PluginProblem((), f"the plugin of the store {scheme!r} declares no address")
    return scheme, address(url, folder)


def get_store_address(settings: Settings, *, folder: Path) -> StoreAddress:
    """Return the address of the configured store. Raises PluginProblem."""
    return resolve_store(settings.store.reveal(), folder=folder, plugins=settings.plugins.folder)[1]


def is_store_shared(settings: Settings) -> bool:
    """Return whether the configured store is one for several machines; False if its address cannot be read."""
    try:
        return get_store_address(settings, folder=Path()).is_shared
    except PluginProblem:
        return False  # the open of the store reports it


def build_store(settings: Settings, *, folder: Path) -> Store:
    """Build the configured store, which is not opened. Raises PluginProblem."""
    plugins = settings.plugins.folder
    name, address = resolve_store(settings.store.reveal(), folder=folder, plugins=plugins)
    store: Store = build_plugin("stores", name, {"url": address.url}, None, folder=plugins)
    return store


def build_scratch_store() -> Store:
    """Build a store that lasts as long as this process."""
    store: Store = build_plugin("stores", SCRATCH_STORE.partition(":")[0], {"url": SCRATCH_STORE}, None)
    return store
