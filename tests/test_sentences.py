"""The pages of the documentation have short sentences: one idea each. Docstrings have things as subjects."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
#: The most words of a sentence, by page. Add a page here once it reads so.
LONGEST: Final = {
    "CHANGELOG.md": 25,
    "CODE_OF_CONDUCT.md": 25,
    "CONTRIBUTING.md": 25,
    "README.md": 25,
    "RELEASING.md": 25,
    "SECURITY.md": 25,
    "deploy/README.md": 25,
    "docs/approvals.md": 25,
    "docs/architecture.md": 25,
    "docs/clients.md": 25,
    "docs/commands.md": 25,
    "docs/console.md": 25,
    "docs/context.md": 25,
    "docs/cookbook.md": 25,
    "docs/counting.md": 25,
    "docs/errors.md": 25,
    "docs/faq.md": 25,
    "docs/from-litellm.md": 25,
    "docs/glossary.md": 25,
    "docs/index.md": 25,
    "docs/keys.md": 25,
    "docs/life-of-a-request.md": 25,
    "docs/limits.md": 25,
    "docs/scale.md": 25,
    "docs/mcp-server.md": 25,
    "docs/mcp.md": 25,
    "docs/operations.md": 25,
    "docs/plugins.md": 25,
    "docs/responses.md": 25,
    "docs/messages.md": 25,
    "docs/runbook.md": 25,
    "docs/security.md": 25,
    "docs/stages.md": 25,
    "docs/threat-model.md": 25,
    "docs/tracing.md": 25,
    "docs/tutorial.md": 25,
    "docs/upstreams.md": 25,
    "docs/usage.md": 25,
    "docs/why.md": 25,
    "docs/workflows.md": 25,
}
#: Words that docstrings seldom need, and the most of them in 1,000 words. Name the client, the caller, the model, the
#: operator, the gateway or the store, and use the verb for what it does: it returns, requests, reports or records.
RATES: Final = {
    r"(?i)\b(?:nobody|somebody|anybody|everybody|whoever|strangers?)\b": 0.2,
    r"(?i)\b(?:asks|asked|tells?|told|says|said)\b": 0.5,
}
#: What is no prose: fenced code, what a program writes behind its mark, other marks, code that is indented.
_NO_PROSE: Final = re.compile(
    r"^ *(?P<fence>`{3,})[^`\n]*\n.*?^ *(?P=fence) *$"
    r"|^<!-- made by .*?(?=\n\n|\Z)"
    r"|<!--.*?-->"
    r"|(?<=\n\n)(?: {4,}\S[^\n]*\n(?:\n(?= {4}))?)+",
    re.MULTILINE | re.DOTALL,
)
_ITEM: Final = re.compile(r"\n(?=\s*(?:[-*]|\d+\.)\s)")
_CELL: Final = re.compile(r"(?<!\\)\|")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
#: A list or an example may follow a colon; what follows a semicolon in small letters belongs to the sentence.
_END: Final = re.compile(r"""(?<=[.!?:;])["')]*\s+(?=["'(]*[A-Z`[])""")


@pytest.mark.parametrize("page", LONGEST)
def test_no_sentence_of_a_page_is_too_long(page: str) -> None:
    """Split it, or make a list of it; the message shows the page, the number of words and the sentence."""
    most = LONGEST[page]
    found = [(len(each.split()), each) for each in sentences((ROOT / page).read_text(encoding="utf-8"))]
    long = [f"{page}: {words} words, at most {most}: {each}" for words, each in found if words > most]
    assert not long, "\n".join(long)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Title\n\nOne two. Three\nfour!", ["One two.", "Three four!"]),
        ("It reads `a. B c`, [the page](x.md#y). **Bold.** Next:\n\n- an item\n- `code` here\n  goes on",
         ["It reads `_`, the page.", "Bold.", "Next:", "an item", "`_` here goes on"]),
        ("One. [two.md](two.md) has it.", ["One.", "two.md has it."]),
        ("| a | b |\n|---|---|\n| One. Two | `x \\| y` three |\n", ["a", "b", "One.", "Two", "`_` three"]),
        ("Before:\n\n```yaml\na: one. Two\n```\n\n<!-- test: it -->\n````text\n```\nno. Prose\n````\nAfter.",
         ["Before:", "After."]),
        ("<!-- made by python -m x -->\n| long | table |\n| of | one |\n\nProse; still the same.",
         ["Prose; still the same."]),
        ("Run:\n\n    make all. Now\n\n    make more\n\nDone.", ["Run:", "Done."]),
    ],
)  # fmt: skip
def test_sentence_splitter_ignores_code_and_markup(text: str, found: list[str]) -> None:
    """Prose, items of lists and cells of tables do; code, marks and what programs write do not."""
    assert list(sentences(text)) == found


@pytest.mark.parametrize(("words", "most"), RATES.items(), ids=["people", "speech"])
def test_docstrings_have_things_as_subjects(words: str, most: float) -> None:
    """The message shows the rate in 1,000 words, and the files with the most of these words."""
    files = sorted(path for folder in ("gateway", "plugins") for path in (ROOT / folder).rglob("*.py"))
    texts = {str(path.relative_to(ROOT)): docstrings(path.read_text(encoding="utf-8")) for path in files}
    found = count_matches(words, texts)
    rate = 1000 * found.total() / sum(len(text.split()) for text in texts.values())
    worst = "\n".join(f"{path}: {number}" for path, number in found.most_common(10))
    assert rate <= most, f"{rate:.2f} of {words} in 1,000 words, at most {most}\n{worst}"


def test_docstring_word_count_ignores_code_and_comments() -> None:
    """Names in code do not, nor do comments, other strings, and words that only contain one of these."""
    text = '''
        """Who asked? It holds `asked`."""

        asked = "it asked"  # nobody asked
        class Basked:
            """The sun, as a model told it."""

            async def said(self) -> str:
                """Say
                `what
                it said`, asked or not: Told once."""
                return """nobody told"""
    '''
    asked = r"(?i)\b(?:asked|told|said)\b"
    texts = {"a.py": docstrings(dedent(text)), "b.py": docstrings("asked = 1")}
    assert texts == {
        "a.py": "Who asked? It holds `_`. The sun, as a model told it. Say `_`, asked or not: Told once.",
        "b.py": "",
    }
    assert count_matches(asked, texts) == {"a.py": 4}


def test_messages_name_a_person_or_a_thing() -> None:
    """An error, a log line or a description names who acts: a person with the scope `approve`, another worker."""
    files = sorted(path for folder in ("gateway", "plugins") for path in (ROOT / folder).rglob("*.py"))
    words = re.compile(r"(?i)\b(?:nobody|somebody|anybody|whoever)\b")
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in files
        for text in messages(path.read_text(encoding="utf-8"))
        if words.search(text)
    ]
    assert found == []


def test_messages_are_strings_without_docstrings() -> None:
    code = '''"""Nobody."""\nraise Error(f"nobody {x!r} came", "plain")\n'''
    assert sorted(messages(code)) == [" came", "nobody ", "plain"]


def messages(code: str) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings."""
    tree = ast.parse(code)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def docstrings(code: str) -> str:
    """Return the docstrings of a module, its classes and functions. A piece of code in them counts as one word."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = (ast.get_docstring(node) for node in ast.walk(ast.parse(code)) if isinstance(node, kinds))
    return " ".join(re.sub(r"`+[^`]+`+", "`_`", " ".join(filter(None, found))).split())


def count_matches(pattern: str, texts: Mapping[str, str]) -> Counter[str]:
    """Return how often a pattern occurs in each text, by the text's name. Texts without it are left out."""
    return +Counter({name: len(re.findall(pattern, text)) for name, text in texts.items()})


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown, without its titles. A piece of code counts as one word."""
    for block in re.split(r"\n\s*\n", _NO_PROSE.sub("", text)):
        for part in _cells(block) if block.lstrip().startswith("|") else _ITEM.split(f"\n{block}"):
            plain = re.sub(r"`+[^`]+`+", "`_`", part).replace("**", "")
            plain = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", plain)
            for each in _END.split(plain):
                if (line := " ".join(_LINK.sub(r"\1", each).split())) and not line.startswith("#"):
                    yield line


def _cells(table: str) -> Iterator[str]:
    """Yield the cells of the rows of a table, without the line below its titles."""
    for row in table.splitlines():
        if not re.fullmatch(r"[|\s:-]+", row):
            yield from _CELL.split(re.sub(r"`+[^`]+`+", "`_`", row))
