"""Words in what people typed. Provisional until 1.0."""

from gateway.text.ask_before import find_ask_request
from gateway.text.keywords import COMPARED_CHARS, extract_keywords
from gateway.text.memory_requests import MemoryRequest, find_memory_request
from gateway.text.negation import is_refused
from gateway.text.phrases import FoldedText, Hit, Phrases, Spans, fold, fold_phrase, is_whole, mentions
from gateway.text.quotes import find_shown_text, list_code_blocks

__all__ = [
    "COMPARED_CHARS",
    "FoldedText",
    "Hit",
    "MemoryRequest",
    "Phrases",
    "Spans",
    "extract_keywords",
    "find_ask_request",
    "find_memory_request",
    "find_shown_text",
    "fold",
    "fold_phrase",
    "is_refused",
    "is_whole",
    "list_code_blocks",
    "mentions",
]
