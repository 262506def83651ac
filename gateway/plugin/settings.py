"""The settings of a plugin as `gateway.yaml` writes them: durations, sizes, counts, flags, paths and secrets.

Provisional until 1.0. A `ToolConfig` of a tool that comes with the gateway stands in `tools` itself, any other
configuration below `with`. Relative paths begin at the folder of the file there, and at the current folder here.
"""

from gateway.config.schema.section import Section as Config
from gateway.config.schema.tools import Tool as ToolConfig
from gateway.config.values.scalars import FilePath, Flag, build_count_type
from gateway.config.values.secret import Secret
from gateway.config.values.units import Duration, build_size_type
from gateway.config.values.value import PathLeaf, ValueType

__all__ = [
    "Config",
    "Duration",
    "FilePath",
    "Flag",
    "PathLeaf",
    "Secret",
    "ToolConfig",
    "ValueType",
    "build_count_type",
    "build_size_type",
]
