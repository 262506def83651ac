"""The texts of the console in Chinese, by the English ones of the templates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).with_name("chinese.yaml")
CHINESE: Final[Mapping[str, str]] = yaml.load(FILE.read_bytes(), yaml.CSafeLoader)
