"""Requests that chat programs make by themselves, for a title, tags or the next questions, recognised by their words.

Such a request quotes the user's chat, or repeats it, without being part of it. Quoted text must not be obeyed twice.

Rule 1: only words of the system and of the last message count. The last message must be the user's: no tool result.
A system message for nothing else counts in each round, as an agent of a program has rounds with its own tools.
Rule 2: an instruction counts where programs put it, at the beginning; at the end only behind a quoted chat.
Rule 3: a recognised task has fewer rights, never more. So a user's message that looks like one costs a plain answer.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.dialects.chat_request import PROGRAM_TEXTS
from gateway.dialects.message_identity import get_content_text

#: The header's value for a request that is a user's own, whatever its words look like.
NO_TASK: Final = "none"
_NAME_CHARS: Final = 64
_NAME = re.compile(f"[A-Za-z0-9_-]{{1,{_NAME_CHARS}}}")
#: So much of a text is looked at: its beginning, its end, and where a quoted chat is looked for.
_HEAD_CHARS, _TAIL_CHARS, _QUOTE_CHARS = 600, 400, 16_000
#: An instruction that ends a conversation is not longer.
_LAST_CHARS: Final = 2_000
#: System messages that are looked at once, the last used ones: programs send the same with each request.
_KEPT: Final = 64
_KEPT_CHARS: Final = 8_000

_I = re.IGNORECASE


def _join_patterns(known: Mapping[str, str]) -> re.Pattern[str]:
    """Return one pattern for all tasks; the `lastgroup` of its match is the task."""
    return re.compile("|".join(f"(?P<{task}>{pattern})" for task, pattern in known.items()), _I)


#: First words of a last message that only one program sends.
_OPENINGS = _join_patterns(
    {
        # Open WebUI
        "emoji": r"Your task is to reflect the speaker's likely facial expression",
        "moa_response": r"You have been provided with a set of responses from various models to the latest",
        # Gemini CLI, Qwen Code
        "next_speaker": r"Analyze \*only\* the content and structure of your immediately preceding",
        # Cline, Roo Code, NextChat, Claude Code
        "summary": r"Your task is to create a (?:detailed|comprehensive) summary of the conversation so far"
        r"|Summarize the discussion briefly in \d+ words or less to use as a prompt"
        r"|Summarize the conversation so far, as described in the prompt instructions"
        r"|CRITICAL: Respond with TEXT ONLY\. Do NOT call any tools",
        "prompt": r"Generate an enhanced version of this prompt \(reply with only",
        # Claude Code
        "follow_up": r"\[SUGGESTION MODE: ",
        "memories": r"You are now acting as the memory extraction subagent",
        "recap": r"The user stepped away and is coming back\. Recap in under",
        "condition": r"Based on the conversation transcript above, has the following stopping condition",
        "quota": r"quota\Z",
    }
)
#: What Open WebUI requests behind its heading `### Task:`, in the default templates since 0.3.
_UNDER_HEADING = _join_patterns(
    {
        "title": r"(?:Generate|Create|Write) [^\n]{0,60}\btitle\b",
        "tags": r"(?:Generate|Create) [^\n]{0,40}\btags\b",
        "follow_up": r"(?:Suggest|Predict|Generate) [^\n]{0,80}\b(?:follow-?ups?|might naturally)\b",
        "query": r"(?:Analyze|Based on|Generate) [^\n]{0,160}\bsearch quer(?:y|ies)\b",
        "image_prompt": r"Generate a detailed prompt for [^\n]{0,20}\bimage\b",
        "autocomplete": r"You are an autocompletion system",
    }
)
_HEADING = re.compile(r"#{1,4} *Task:?\s+", _I)
#: First words of a system message for nothing else.
_PERSONAS = _join_patterns(
    {
        "title": r"You are an? (?:[\w-]+ ){0,3}(?:title|topic) (?:generator|maker|writer)\b"
        r"|Generate a (?:concise, sentence-case title|short kebab-case name)",
        "tags": r"You are an? (?:[\w-]+ ){0,3}tags? generator\b",
        "autocomplete": r"You are an? (?:[\w-]+ ){0,3}auto-?complet\w+ (?:system|engine|assistant)\b",
        "summary": r"You are the component that summarizes internal chat history"
        r"|You are a helpful AI assistant tasked with summarizing conversations"
        r"|You are an anchored context summarization assistant",
        # Qwen Code: requests of its agents for memory, which have tools of their own
        "memory": r"You are now acting as the managed memory extraction subagent"
        r"|You are performing a managed memory dream\b"
        r"|You are saving one explicit durable memory\b"
        r"|You are selecting memories that will be useful to an AI coding assistant",
        # Claude Code
        "label": r"Write a short summary label describing what these tool calls",
        "command_prefix": r"Your task is to process \S{1,40} commands that an AI coding agent wants to run",
        "function_calling": r"Available Tools: [\s\S]{0,20000}?\bYour task is to choose and return",
    }
)
#: How the system message of each of Claude Code's requests begins, whatever the request is for.
_IDENTITY = re.compile(r"You are (?:Claude Code|a Claude agent), [^\n]{0,80}?(?:Claude|SDK)\.\s*")
#: How programs call a title, and what it is of. Few texts have one word of each, so these are looked for first.
_TITLES = ("headline", "name", "short summary", "title", "topic")
_CHATS = ("chat", "conversation", "dialog", "dialogue", "discussion", "message", "session", "thread", "what the user")
_TITLE = re.compile(
    r"\b(?:come up with|create|generate|give|make|name|produce|provide|reply with|suggest|summari[sz]e|write)\b"
    rf"[\s\S]{{0,160}}?\b(?:{'|'.join(_TITLES)})\b",
    _I,
)
_OF_A_CHAT = re.compile(rf"\b(?:{'|'.join(_CHATS)})\b", _I)
#: That nothing else is wanted: words that a person seldom adds.
_NOTHING_ELSE = re.compile(
    r"\b(?:nothing|anything) else\b|\bonly (?:give|output|provide|reply|respond|return|the (?:name|title|topic))\b"
    r"|\b(?:name|output|reply|respond|return|title|topic) (?:with )?only\b|\btitle itself\b"
    r"|\b(?:no|not using|omitting|without)(?: any)?(?: \w+,){0,2}"
    r" (?:explanations?|lead-in|preamble|punctuation|quot\w+)\b",
    _I,
)
_ABOUT_A_CHAT = re.compile(
    r"\b(?:categor(?:y|ies|i[sz]e)|emoji|follow-?ups?|headline|keywords?|labels?|next (?:messages?|questions?)"
    r"|search quer(?:y|ies)|suggest\w*|summar(?:y|i[sz]e)|tags?|title|topics?)\b",
    _I,
)
_TAG = re.compile(r"<(chat_history|chat|conversation|history|messages|transcript)>[\s\S]*?</\1>", _I)
_USERS = ("human", "user")
_THEY = re.compile(rf"^\W{{0,4}}(?:{'|'.join(_USERS)})\W{{0,3}}:", _I | re.MULTILINE)
_WE = re.compile(r"^\W{0,4}(?:ai|assistant|bot|chatgpt|model)\W{0,3}:", _I | re.MULTILINE)


def find_requested_task(said: str | None, messages: Sequence[Mapping[str, object]], *, look: bool) -> str | None:
    """Return the task of a request: by its header, else by its words if `look` is true.

    Raises GatewayError (invalid_header).
    """
    if said is None:
        return find_task(messages) if look else None
    if _NAME.fullmatch(said) is None:
        text = f"It must be at most {_NAME_CHARS} letters, digits, '_' and '-', or {NO_TASK!r}."
        raise GatewayError("invalid_header", text, param="x-context-task")
    return None if said == NO_TASK else said


def find_task(messages: Sequence[Mapping[str, object]]) -> str | None:
    """Return the task of a program in one word (`title`, `tags`, ...), or None for a user's own request."""
    said = [message for message in messages if message.get("role") not in ("system", "developer")]
    if not said:
        return None
    told = [get_content_text(m.get("content")).lstrip() for m in messages if m.get("role") in ("system", "developer")]
    for text in told:
        persona = text[found.end() :] if (found := _IDENTITY.match(text)) is not None else text
        look = _match_cached_persona if len(persona) <= _KEPT_CHARS else _match_persona
        if (task := look(persona)) is not None:
            return task
    if said[-1].get("role") != "user":
        return None
    content = said[-1].get("content")
    text, alone = _get_typed_text(content).strip(), len(said) == 1
    if (task := _match_first(_OPENINGS, text)) is not None:
        return task
    # Claude Code writes its instruction behind words of the user's that have no answer yet.
    if isinstance(content, list) and (task := _match_first(_OPENINGS, _get_typed_text(content[-1:]))) is not None:
        return task
    if alone and (heading := _HEADING.match(text)) is not None:
        task = _match_first(_UNDER_HEADING, text[heading.end() : heading.end() + _HEAD_CHARS])
        if task is not None:
            return task
    if (alone or len(text) <= _LAST_CHARS) and (task := _match_title_task(text)) is not None:
        return task
    return "about_chat" if alone and _asks_about_a_quoted_chat(text) else None


def _get_typed_text(content: object) -> str:
    """Return the text of a user's message without parts that a program adds for its model."""
    if isinstance(content, list):
        content = [part for part in content if not get_content_text([part]).startswith(PROGRAM_TEXTS)]
    return get_content_text(content)


def _match_persona(text: str) -> str | None:
    """Return the task that a system message is for, if it is for nothing else."""
    return _match_first(_PERSONAS, text) or _match_title_task(text)


@lru_cache(maxsize=_KEPT)
def _match_cached_persona(text: str) -> str | None:
    return _match_persona(text)


def _match_first(known: re.Pattern[str], text: str) -> str | None:
    found = known.match(text)
    return None if found is None else found.lastgroup


def _contains_any(words: Sequence[str], folded: str) -> bool:
    return any(map(folded.__contains__, words))


def _match_title_task(text: str) -> str | None:
    """Return the task `title` for a text that requests the title of a chat; else None."""
    head = text[:_HEAD_CHARS]
    if not _contains_any(_TITLES, folded := head.casefold()) or not _contains_any(_CHATS, folded):
        return None
    found = _TITLE.search(head, 0, 400)
    is_one = found is not None and _OF_A_CHAT.search(head) and _NOTHING_ELSE.search(head)
    return "title" if is_one else None


def _asks_about_a_quoted_chat(text: str) -> bool:
    """Return whether the text quotes a chat, in tags or line by line, and has an instruction before or behind it."""
    quoted = text[:_QUOTE_CHARS]
    is_tagged = "</" in quoted and _TAG.search(quoted) is not None
    if not is_tagged and not (_contains_any(_USERS, quoted.casefold()) and _THEY.search(quoted) and _WE.search(quoted)):
        return False
    around = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    wanted = _ABOUT_A_CHAT.search(around)
    return wanted is not None and (_NOTHING_ELSE.search(around) is not None or "JSON" in around)
