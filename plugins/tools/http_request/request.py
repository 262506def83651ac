"""One web request of a model: its checked arguments, the targets of redirects, and the text of a body.

A URL is parsed once, and the connection uses the parsed form.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from multidict import CIMultiDict
from yarl import URL

from gateway.plugin.method_overrides import path_overrides_method

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
REDIRECTS = (301, 302, 303, 307, 308)
PORTS = {"http": 80, "https": 443}
MAX_URL, MAX_HEADERS, MAX_HEADER, MAX_BODY_BYTES = 8192, 64, 8192, 1 << 20

#: They belong to the connection, or decide where the request goes or ends (RFC 9110, section 7.6.1).
_REFUSED_HEADERS = frozenset(
    (
        *("connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-authenticate"),
        *("proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
#: What follows a redirect to another origin; any other may be a credential (RFC 9110, section 15.4).
_CARRIED_HEADERS = frozenset(("accept", "accept-encoding", "accept-language", "content-type", "user-agent"))
#: Charsets of the web, as Python names them; of its other codecs some are not charsets and some take quadratic time.
_CHARSETS = frozenset(
    (
        *("ascii", "big5", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
        *("cp866", "cp874", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "iso2022_jp", "iso8859-1", "iso8859-15"),
        *("iso8859-2", "iso8859-5", "iso8859-7", "koi8-r", "koi8-u", "shift_jis", "utf-16", "utf-16-be", "utf-16-le"),
    )
)
_TEXT = re.compile(
    r"text/|application/(?:[\w.-]+\+)?(?:json|xml|x-ndjson|ndjson|javascript|ecmascript|yaml|x-yaml|toml|sql|graphql|"
    r"x-www-form-urlencoded)\Z|(?:image|model|message)/[\w.-]+\+(?:json|xml)\Z"
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_LINE = re.compile(r"[\x20-\x7e\t]*\Z")
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")


class RequestRefusedError(ValueError):
    """A request that cannot be made. The text is for the model."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    method: str
    url: URL
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    body: bytes | None = None


def read_web_request(arguments: Mapping[str, object]) -> WebRequest:
    """Return the request. Raises RefusedError for arguments that are none, of any type and size."""
    method, url = arguments.get("method", "GET"), arguments.get("url")
    headers, body = arguments.get("headers"), arguments.get("body")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise RequestRefusedError(f"`method` is one of {', '.join(METHODS)}")
    if not isinstance(url, str):
        raise RequestRefusedError("`url` is missing, or is not a string")
    if body is not None and not isinstance(body, str):
        raise RequestRefusedError("`body` is not a string: send JSON as its text")
    if body is not None and len(body) > MAX_BODY_BYTES:
        raise RequestRefusedError(f"`body` is longer than {MAX_BODY_BYTES} characters")
    try:
        content = body.encode() if body is not None else None
    except UnicodeEncodeError:
        raise RequestRefusedError("`body` has a lone surrogate, which is no Unicode text") from None
    return WebRequest(method.upper(), read_web_url(url), _read_headers({} if headers is None else headers), content)


def read_web_url(text: str) -> URL:
    if len(text) > MAX_URL:
        raise RequestRefusedError(f"`url` is longer than {MAX_URL} characters")
    if _NOT_IN_URL.search(text):
        raise RequestRefusedError("`url` has a space, a backslash or a control character: percent-encode it")
    try:
        url = URL(text)
        host, port = url.host, url.port
    except ValueError:
        raise RequestRefusedError("`url` is not a valid URL") from None
    if url.scheme not in PORTS or not host:
        raise RequestRefusedError("`url` must begin with http:// or https:// and name a host")
    if url.user is not None or url.password is not None:
        raise RequestRefusedError("`url` has a user or a password before '@': use an Authorization header")
    if not port or "%" in host:
        raise RequestRefusedError("`url` has a host or a port that is none")
    return url.with_fragment(None)


def _read_headers(given: object) -> CIMultiDict[str]:
    if not isinstance(given, dict) or len(given) > MAX_HEADERS:
        raise RequestRefusedError(f"`headers` is an object of at most {MAX_HEADERS} strings")
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in given.items():
        if not isinstance(name, str) or not _TOKEN.match(name) or len(name) > MAX_HEADER:
            raise RequestRefusedError("`headers` has a name that is none")
        if not isinstance(value, str) or not _LINE.match(value) or len(value) > MAX_HEADER:
            raise RequestRefusedError(f"the header {name!r} is not one line of at most {MAX_HEADER} ASCII characters")
        if name.lower() in _REFUSED_HEADERS or name in headers:
            raise RequestRefusedError(f"the header {name!r} is not yours to set, or is there twice: leave it out")
        headers[name] = value
    return headers


def build_redirect(request: WebRequest, *, status: int, location: str | None) -> WebRequest | None:
    """Return the request that follows, by RFC 9110, section 15.4. None: this answer is the last.

    A change goes to no other origin than the one it was meant for. Raises RefusedError for a location that is none.
    """
    if status not in REDIRECTS or not location:
        return None
    try:
        if _NOT_IN_URL.search(location):
            raise RequestRefusedError
        url = read_web_url(str(request.url.join(URL(location))))
    except ValueError:
        raise RequestRefusedError(f"{request.url.host!r} redirects to what is no web address") from None
    rewritten = request.method == "POST" if status in (301, 302) else status == 303
    if rewritten and request.method not in SAFE_METHODS:
        content = [name for name in request.headers if name.lower().startswith("content-")]
        request = replace(request, method="GET", body=None, headers=_remove_headers(request.headers, content))
    if url.origin() != request.url.origin():
        if request.method not in SAFE_METHODS:
            return None
        personal = [name for name in request.headers if name.lower() not in _CARRIED_HEADERS]
        request = replace(request, headers=_remove_headers(request.headers, personal))
    return replace(request, url=url)


def is_alike(asked: URL, following: URL) -> bool:
    """Return whether a redirect leads to the same server, with the same query or none: what was judged holds for it.

    It does not hold for a path with a parameter that may replace the method.
    """
    upgrades = (asked.scheme, asked.port, following.scheme, following.port) == ("http", 80, "https", 443)
    same = asked.host == following.host and (asked.origin() == following.origin() or upgrades)
    is_plain = not path_overrides_method(following.raw_path)
    return same and is_plain and following.raw_query_string in ("", asked.raw_query_string)


def _remove_headers(headers: CIMultiDict[str], names: list[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name not in names)


def decode_body(body: bytes, *, content_type: str | None, charset: str | None) -> str | None:
    """Return the body as text. None: it is not text. A charset that is unusual on the web is read as UTF-8."""
    if content_type is None:
        if b"\0" in body[:1024]:
            return None
    elif body and not _TEXT.match(content_type.lower()):
        return None
    try:
        codec = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        codec = "utf-8"
    return body.decode(codec if codec in _CHARSETS else "utf-8", "replace").removeprefix("\ufeff")
