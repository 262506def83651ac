"""The texts of the base prompts that the configuration has, and the files that hold them."""

from collections.abc import Mapping

from gateway.config.problems import ConfigError, Problem
from gateway.config.reading.yaml_reader import MAX_FILE_BYTES, read_text
from gateway.config.schema.context import Prompt


def read_prompt_texts(prompts: Mapping[str, Prompt]) -> dict[str, str]:
    """Return the texts by the names of their prompts. Raises ConfigError for every file that cannot be read.

    A file system may hang: call it where the configuration is loaded, before you call it on an event loop.
    """
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for name, prompt in prompts.items():
        try:
            file = prompt.file
            texts[name] = prompt.text or "" if file is None else read_text(file, limit_bytes=MAX_FILE_BYTES)
        except ValueError as error:
            problems.append(Problem("configuration", f"prompts.{name}.file", str(error)))
    if problems:
        raise ConfigError(tuple(problems))
    return texts
