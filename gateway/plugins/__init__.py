"""The plugins that come with the gateway: the folder `plugins/` of a checkout, which a wheel carries in here."""

from pathlib import Path

_HERE = Path(__file__).parent
if not (_HERE / "stages").is_dir():  # a checkout; in a wheel they stand right here
    __path__ = [str(_HERE.parents[1] / "plugins")]
