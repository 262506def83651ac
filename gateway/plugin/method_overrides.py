"""Parameters that make a server take a reading request for another method.

Frameworks name them `_method` (Rails, Laravel, Symfony, WordPress, Express), `X-HTTP-Method-Override`, `$httpMethod`
(OData), `verb` or `override`. They spell a name with brackets, dots and blanks, and some decode it twice.
"""

import re
import unicodedata
from typing import Final
from urllib.parse import unquote, unquote_plus

from gateway.plugin.word_lists import split_words

#: The letters of names that mean nothing else, whatever their value.
_NAMES: Final = split_words("""
    httpmethod xhttpmethod httpmethodoverride xhttpmethodoverride methodoverride xmethodoverride xmethod overridemethod
    requestmethod xrequestmethod httpverb xhttpverb verboverride httpoverride actualmethod realmethod
""")
#: The same for names that begin with a mark, such as `_method` and `$verb`.
_MARKED: Final = split_words("method verb override httpmethod httpverb requestmethod m")
#: In a name with one of these a value that is a writing method is one.
_TELLING: Final = re.compile("method|verb|override|httpaction")
#: Methods that do more than read (HTTP, WebDAV, graph APIs), as letters.
_WRITING: Final = split_words("""
    post put patch delete del create update destroy remove merge mkcol mkcalendar copy move purge link unlink lock
    unlock proppatch acl bind rebind unbind checkin checkout label uncheckout connect
""")
#: Where servers begin another parameter.
_PAIRS: Final = re.compile("[;&?\0\r\n]")
_NO_LETTER: Final = re.compile("[^a-z0-9]")
_MOST_DECODINGS: Final = 3


def overrides_method(parameter: str) -> bool:
    """Return whether a server may read a parameter that replaces the method in the decoded text `NAME=VALUE`."""
    for _ in range(_MOST_DECODINGS):
        if any(_overrides_method(piece) for piece in _PAIRS.split(parameter)):
            return True
        decoded = unquote_plus(parameter)
        if decoded == parameter:
            return False
        parameter = decoded
    return False


def path_overrides_method(path: str) -> bool:
    """Return whether a server may read such a parameter in a path as it is written, such as `/a;_method=DELETE`."""
    return any(overrides_method(f"{piece}=") for piece in unquote(path).split("/"))


def _overrides_method(piece: str) -> bool:
    key, _, value = unicodedata.normalize("NFKC", piece).casefold().partition("=")
    # `_method[x]`, `_method.x` and `a[_method]` are that name to one server or another.
    for part in (key, *re.split(r"[\[\].]", key)):
        name = _NO_LETTER.sub("", part)
        if name in _NAMES or (name in _MARKED and not part[:1].isalnum()):
            return True
    return bool(_TELLING.search(_NO_LETTER.sub("", key))) and _NO_LETTER.sub("", value) in _WRITING
