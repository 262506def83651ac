"""The texts of the console in Chinese, by the English ones of the templates."""

from collections.abc import Mapping
from typing import Final

from gateway.console.chinese_core import CORE
from gateway.console.chinese_library import LIBRARY
from gateway.console.chinese_runs import RUNS
from gateway.console.chinese_tools import TOOLS

CHINESE: Final[Mapping[str, str]] = {
    **CORE,
    **LIBRARY,
    **RUNS,
    **TOOLS,
}
