"""Every text that a page may show has its Chinese, with the same places for values."""

import ast
import re
from pathlib import Path

import pytest
import yaml

import gateway.console
import gateway.plugin
import gateway.plugins.assessors
import gateway.plugins.tools
import gateway.tools.call_evaluator
import gateway.tools.gate
from gateway.console.feature_pages import collect_entries
from gateway.console.middleware import REFUSALS
from gateway.console.pages.approvals.approval import BASES
from gateway.console.pages.approvals.inbox import AGES, GROUPINGS, ORDERS
from gateway.console.pages.services import PARTS
from gateway.console.pages.status import FIGURES
from gateway.console.pages.tools import SOURCES
from gateway.console.pages.upstreams import OUTCOMES
from gateway.console.pages.upstreams import STATES as ENDPOINT_STATES
from gateway.console.request import DONE
from gateway.console.translation import CHINESE, FILES, GATE_REASONS, find_rule_sentence, translate_reason
from gateway.contracts.storage.journal import ApprovalState, RunState, StepState
from gateway.features import registry
from gateway.features.limits.console import RENEWED, SCOPES, WORDS
from gateway.features.usage.console import KINDS
from gateway.plugins.assessors.command import CommandAssessor
from gateway.plugins.assessors.file import FileAssessor

FEATURES = registry.FOLDER
ROOM = Path(gateway.console.__file__).parent
_TEXT = r'"((?:[^"\\]|\\.)*)"'
#: How templates and code name a text that is shown.
_IN_TEMPLATES = re.compile(rf"\bt\(\s*{_TEXT}")
_IN_CODE = re.compile(
    rf"(?:\.t|\btranslate|translator\(language\))\(\s*{_TEXT}|\btitle={_TEXT}|FieldError\([A-Za-z.]+, {_TEXT}"
)
_IN_REFUSALS = re.compile(rf"refusal\(request, \d+, \"[a-z_]+\", {_TEXT}|\btext = {_TEXT}")
_PLACES = re.compile(r"{\d*}")


def texts() -> set[str]:
    found: set[str] = set()
    for template in (*ROOM.glob("templates/*.html"), *FEATURES.glob("*/templates/*.html")):
        found |= {match[1] for match in _IN_TEMPLATES.finditer(template.read_text())}
    for file in (*ROOM.rglob("*.py"), *FEATURES.glob("*/console*.py")):
        code = file.read_text()
        found |= {next(filter(None, match.groups()), "") for match in _IN_CODE.finditer(code)}
    refusals = _IN_REFUSALS.finditer((ROOM / "middleware.py").read_text())
    found |= {match[1] or match[2] for match in refusals}
    return {text.replace('\\"', '"') for text in found if text}


def test_every_text_is_translated() -> None:
    """Texts of templates and code, navigation, notices, and words of the API that pages show."""
    states = {state for states in (RunState, ApprovalState, StepState) for state in states.__args__}
    shown = texts() | set(DONE.values()) | set(BASES.values()) | {entry.name for entry in collect_entries()} | states
    shown |= set(PARTS.values()) | set(SOURCES.values()) | {title for _, title, _ in FIGURES}
    shown |= {*KINDS.values(), *SCOPES.values(), *WORDS.values(), *RENEWED.values(), *OUTCOMES.values()}
    shown |= {word for word, _ in ENDPOINT_STATES.values()}
    shown |= {*ORDERS.values(), *GROUPINGS.values(), *AGES.values()}
    shown |= set(GATE_REASONS)
    shown |= set(REFUSALS.values()) | {"valid", "expired", "revoked"}
    assert len(shown) > 300
    assert shown - CHINESE.keys() == set()


def test_translations_keep_the_placeholders_of_their_text() -> None:
    """A value that a translation left out would not be shown."""
    wrong = [
        text for text, chinese in CHINESE.items() if sorted(_PLACES.findall(text)) != sorted(_PLACES.findall(chinese))
    ]
    assert wrong == []
    assert all(isinstance(chinese, str) and chinese.strip() for chinese in CHINESE.values())


def test_translation_file_has_no_duplicate_keys() -> None:
    """YAML would take the last one; and of two files, the later one."""
    names = [key.value for file in FILES for key, _ in yaml.compose(file.read_text()).value]
    assert len(names) == len(set(names))


def reasons_of_gate() -> set[str]:
    """Return the reasons of the gate and the judge in verdicts that ask a person, with {0} for each value."""
    found: set[str] = set()
    for file in (gateway.tools.gate, gateway.tools.call_evaluator):
        for node in ast.walk(ast.parse(Path(str(file.__file__)).read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            asks = isinstance(node.args[0], ast.Constant) and node.args[0].value == "confirm"
            if asks or (isinstance(node.func, ast.Attribute) and node.func.attr == "choose_default"):
                text = node.args[-1]
                if isinstance(text, ast.Constant):
                    found.add(str(text.value))
                elif isinstance(text, ast.JoinedStr):
                    found.add(
                        "".join(str(one.value) if isinstance(one, ast.Constant) else "{0}" for one in text.values)
                    )
    return found | set(gateway.tools.gate._DOUBTS.values())


def test_every_reason_of_the_gate_is_translated() -> None:
    """With the tool and the level that stand in it; one of an assessor or a person stays as it was written."""
    assert reasons_of_gate() == set(GATE_REASONS)
    told = "The operator wants 'notes.add' to be approved."
    assert translate_reason(told, "notes.add", "zh") == "运维人员要求批准对 'notes.add' 的调用。"
    assert translate_reason(told, "notes.add", "en") == told
    assert translate_reason(told, "other", "zh") == told
    assert translate_reason("The model says that the risk is high.", "x{0}", "zh") == "模型表示风险为 high。"
    assert translate_reason("Key", "x", "zh") == "Key"


PLUGIN = Path(gateway.plugin.__file__).parent
(ASSESSORS,) = map(Path, gateway.plugins.assessors.__path__)
(TOOLS,) = map(Path, gateway.plugins.tools.__path__)
#: Where the rules of each assessor are written: its own code, what reads its language, and the engine that doubts it.
RULES_OF = {
    "command": (ASSESSORS / "command", PLUGIN / "shell", TOOLS / "execute_command"),
    "file": (ASSESSORS / "file.py",),
    "http": (ASSESSORS / "http",),
    "sql": (ASSESSORS / "sql.py", PLUGIN / "sql", TOOLS / "execute_sql"),
}
#: What takes a rule as its first value.
_TAKE_A_RULE = {"Objection", "QueryDoubt", "EngineDoubt", "_Doubt", "_raise_if_hardened", "_build_confirm_verdict"}
_RULE = re.compile(r"[a-z]+(?:_[a-z]+)*")


def rules_in(code: str) -> set[str]:
    """The rules that code hands to a doubt or a verdict, pairs them with a sentence, or marks SQL with."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name(id="Verdict"), args=[_, _, ast.Constant(value=str(rule)), _]):
                found.add(rule.partition(".")[2])
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(rule)), *_]):
                found |= {rule} if name in _TAKE_A_RULE else set()
            case ast.Call(func=ast.Name(id="Judgement"), args=[ast.Tuple(elts=[ast.Constant(value=str(rule)), _]), *_]):
                found.add(rule)
            case ast.Tuple(elts=[ast.Constant(value=str(rule)), ast.Constant(value=str(text))]) if " " in text:
                found.add(rule)
            case ast.Tuple(elts=[ast.Constant(value=str(rule)), ast.JoinedStr()]):
                found.add(rule)
            case (
                ast.AnnAssign(target=ast.Name(id="_HARDENED"), value=ast.Dict(keys=marks))
                | ast.AnnAssign(target=ast.Name(id="_EXTENDED"), value=ast.Call(args=[ast.Set(elts=marks)]))
            ):
                found |= {str(mark.value) for mark in marks if isinstance(mark, ast.Constant)}
    return {rule for rule in found if _RULE.fullmatch(rule)}


@pytest.mark.parametrize("assessor", RULES_OF)
def test_every_assessor_rule_has_a_chinese_sentence(assessor: str) -> None:
    """One that its source names, and no sentence for a rule that is gone."""
    files = [file for place in RULES_OF[assessor] for file in (place.rglob("*.py") if place.is_dir() else [place])]
    rules = {f"{assessor}.{rule}" for file in files for rule in rules_in(file.read_text())}
    assert len(rules) > 5
    assert {name for name in CHINESE if name.startswith(f"{assessor}.")} == rules


def test_rule_sentence_exists_in_chinese_only() -> None:
    """A plugin of the operator's may give a rule any name, also that of another text of the console."""
    asked = (
        CommandAssessor("standard").assess({"command": "rm x"}),
        FileAssessor("standard").assess({"operation": "x"}),
    )
    assert [find_rule_sentence(verdict.rule, "zh") for verdict in asked] == [
        "其中有命令或程序不在已知无害的列表中。",
        "此操作不是只读操作。",
    ]
    assert [find_rule_sentence(verdict.rule, "en") for verdict in asked] == [None, None]
    assert [find_rule_sentence(rule, "zh") for rule in ("Inbox", "operation", "file.own", "", None)] == [None] * 5
