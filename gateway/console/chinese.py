"""The texts of the console in Chinese, by the English ones of the templates."""

from collections.abc import Mapping
from typing import Final

CHINESE: Final[Mapping[str, str]] = {
    "Inbox": "待办",
}
