"""Words in what people typed. Provisional until 1.0."""

from gateway.text.ask_before import find_ask_request
from gateway.text.keywords import COMPARED_CHARS, extract_keywords
from gateway.text.memory_requests import MemoryRequest, memory_request
from gateway.text.negation import is_refused
from gateway.text.phrases import FoldedText, Hit, Phrases, Spans, fold, fold_phrase, is_whole, mentions
from gateway.text.quotes import code_blocks, shown_text

__all__ = [
    "COMPARED_CHARS",
    "FoldedText",
    "Hit",
    "MemoryRequest",
    "Phrases",
    "Spans",
    "code_blocks",
    "extract_keywords",
    "find_ask_request",
    "fold",
    "fold_phrase",
    "is_refused",
    "is_whole",
    "memory_request",
    "mentions",
    "shown_text",
]
