"""The assessor of HTTP requests: a plain reading request to a public host runs by itself. All else needs approval.

It judges spelling only. The tool checks each redirect, and the addresses that it connects to.
"""

from typing import Final, Literal
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Host, Json, Plugin, Verdict
from gateway.plugin.method_overrides import overrides_method, path_overrides_method
from gateway.plugin.word_lists import split_words

from .headers import carries_credential, find_header_doubt
from .secret_values import is_secret_value, names_credential
from .urls import MAX_CHARS, MAX_PARAMETERS, Url, find_embedded_urls, split_url

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Arguments that may be there as long as they are empty.
_BODIES: Final = split_words("body data json form files content payload")
_BESIDE: Final = split_words("""
    timeout timeout_s timeout_ms timeout_seconds connect_timeout read_timeout follow_redirects allow_redirects
    max_redirects max_bytes max_size max_chars encoding response_format accept user_agent http_version retries
    description reason purpose risk_level
""")
_TLS: Final = split_words("verify verify_ssl ssl_verify verify_tls tls_verify check_certificate verify_certificate")
_INSECURE: Final = split_words("insecure skip_verify insecure_skip_verify ignore_ssl_errors ignore_certificate")
_PROXIES: Final = split_words("proxy proxies proxy_url http_proxy https_proxy")
_CREDENTIALS: Final = split_words("auth cookies cookie bearer_token token api_key username password")
#: A longer path and query may carry a conversation away.
_MAX_TARGET_CHARS: Final = 1_024
_MAX_HEADERS: Final = 64
_WEB_PORTS: Final = frozenset({80, 443, 3000, 5000, 8000, 8008, 8080, 8081, 8443, 8888, 9443})


class Config(BaseModel):
    """The options of the assessor of HTTP requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Literal["literal", "standard", "hardened"] = Field(
        "standard",
        description="literal and standard: GET, HEAD and OPTIONS in plain form; hardened: private networks, "
        "proxies, skipped certificate checks, credentials, unusual ports, long queries and URLs that lead on ask, too.",
    )
    private_networks: bool = Field(False, description="Whether hosts in private networks are as good as public ones.")
    hosts: tuple[str, ...] = Field(
        (), description="Hosts that need no asking; `*.example.com` are those below it. Empty: there is no such list."
    )


class _Doubt(Exception):  # noqa: N818 - a doubt is not an error
    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(rule, reason)
        self.verdict = Verdict("confirm", "default", f"http.{rule}", reason)


class HttpAssessor:
    """The assessor of `{"method": text, "url": text, "headers": object, ...}`."""

    def __init__(self, config: Config) -> None:
        self._hardened = config.profile == "hardened"
        self._private_networks = config.private_networks
        self._hosts = tuple(host.lower().removesuffix(".") for host in config.hosts)

    def assess(self, arguments: Json) -> Verdict:
        try:
            self._judge_method(arguments.get("method"))
            url = self._judge_url(arguments.get("url"))
            for name, value in arguments.items():
                if name not in ("method", "url") and value is not None:
                    self._judge_argument(str(name), value)
            if self._hardened:
                self._judge_hardened_url(url)
        except _Doubt as doubt:
            return doubt.verdict
        return Verdict("auto", "whitelist", "http.reading", "It is a plain reading request.")

    def _judge_method(self, method: object) -> None:
        if not isinstance(method, str):
            raise _Doubt("arguments", "The argument 'method' is missing or is not a text.")
        if not method.isascii() or method.upper() not in _READING:
            raise _Doubt("method", f"The method {method[:20]!r} is not one that only reads.")

    def _judge_url(self, text: object) -> Url:
        if not isinstance(text, str):
            raise _Doubt("arguments", "The argument 'url' is missing or is not a text.")
        url = split_url(text)
        if isinstance(url, str):
            raise _Doubt("url", f"The URL is unusual: {url}.")
        if url.host.reach == "metadata":
            raise _Doubt("metadata", "The host is a metadata service or link-local: these hand out credentials.")
        if self._hosts and not self._is_listed_host(url.host.name):
            raise _Doubt("hosts", "The host is not on the list of hosts that need no asking.")
        self._judge_parameters(url.query)
        if path_overrides_method(url.path):
            raise _Doubt("override", "A parameter in the path of the URL may replace the method.")
        return url

    def _judge_parameters(self, query: tuple[tuple[str, str], ...]) -> None:
        if any(overrides_method(f"{name}={value}") for name, value in query):
            raise _Doubt("override", "A parameter of the URL may replace the method.")

    def _is_listed_host(self, name: str) -> bool:
        return any(
            name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern for pattern in self._hosts
        )

    # Arguments beside method and URL.

    def _judge_argument(self, name: str, value: object) -> None:
        if name == "headers":
            self._judge_headers(value)
        elif name in ("params", "query"):
            self._judge_extra_query(value)
        elif name in _BODIES:
            if value not in ("", {}, []):
                raise _Doubt("body", "A reading request with a body may do more than read.")
        elif name in _TLS | _INSECURE:
            if value is not (name in _TLS):
                self._raise_if_hardened("certificate", "The certificate of the host would not be checked.")
        elif name in _PROXIES:
            self._raise_if_hardened("proxy", "The request would go through a proxy that the model chose.")
        elif name in _CREDENTIALS:
            self._raise_if_hardened("credentials", "The request carries credentials.")
        elif name not in _BESIDE or not isinstance(value, str | int | float):
            raise _Doubt("arguments", f"The argument {name[:40]!r} may change what happens.")
        elif isinstance(value, str) and find_header_doubt("accept", value):
            raise _Doubt("arguments", f"The argument {name[:40]!r} has unusual characters.")

    def _raise_if_hardened(self, rule: str, reason: str) -> None:
        if self._hardened:
            raise _Doubt(rule, reason)

    def _judge_headers(self, headers: object) -> None:
        if not isinstance(headers, dict):
            raise _Doubt("headers", "The headers are not an object of names and texts.")
        if len(headers) > _MAX_HEADERS:
            raise _Doubt("headers", f"There are more than {_MAX_HEADERS} headers.")
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, str | int):
                raise _Doubt("headers", "The headers are not an object of names and texts.")
            problem = find_header_doubt(name, _convert_text(value))
            if problem:
                raise _Doubt("headers", f"In the headers, {problem}.")
            if carries_credential(name) or is_secret_value(_convert_text(value)):
                self._raise_if_hardened("credentials", "The request carries credentials.")

    def _judge_extra_query(self, value: object) -> None:
        query = _list_query(value)
        if sum(len(name) + len(each) for name, each in query) > MAX_CHARS:
            raise _Doubt("arguments", "The query is too long.")
        self._judge_parameters(query)
        if self._hardened:
            self._judge_embedded_urls("", query)
            _raise_if_credentials("", query)

    # What needs approval only under the hardened profile.

    def _judge_hardened_url(self, url: Url) -> None:
        vouched = self._is_listed_host(url.host.name)
        if url.host.reach == "private" and not self._private_networks and not vouched:
            raise _Doubt("private_network", "The host is in a private network, or is this machine.")
        if url.host.disguised and not vouched:
            raise _Doubt("disguised", "The host is an address in an unusual spelling.")
        if url.port is not None and url.port not in _WEB_PORTS and not vouched:
            raise _Doubt("port", f"Port {url.port} is not a usual one of the web.")
        if url.target_chars > _MAX_TARGET_CHARS and not vouched:
            raise _Doubt("long_target", "Its path and query are long enough to carry a conversation away.")
        self._judge_embedded_urls(url.path, url.query)
        _raise_if_credentials(url.path, url.query)

    def _judge_embedded_urls(self, path: str, query: tuple[tuple[str, str], ...]) -> None:
        """Raise _Doubt for a URL inside the URL: the server may redirect to it, or fetch it."""
        redirects = "redirect" in path.lower()
        for text in (path, *(value for _, value in query)):
            for inner in find_embedded_urls(text):
                if text is path and inner.startswith("//"):
                    continue  # two slashes in a path are a slip
                target = split_url(f"http:{inner}" if inner.startswith("//") else inner)
                if redirects or isinstance(target, str) or target.host.reach != "public" or target.host.disguised:
                    raise _Doubt("leads_on", "The URL holds another one, to which the server may lead on.")


def _raise_if_credentials(path: str, query: tuple[tuple[str, str], ...]) -> None:
    """Raise _Doubt for a credential in a URL, because every log on the way stores it."""
    if is_secret_value(unquote(path)) or any(names_credential(name) or is_secret_value(value) for name, value in query):
        raise _Doubt("credentials", "The URL carries credentials.")


def _list_query(value: object) -> tuple[tuple[str, str], ...]:
    """Return the parameters of an object; a list gives its name several values, null none. Raises _Doubt."""
    found: list[tuple[str, str]] = []
    for name, each in value.items() if isinstance(value, dict) else ((None, None),):
        values = each if isinstance(each, list) else [] if each is None else [each]
        if name is None or not all(isinstance(one, str | int | float) for one in values):
            raise _Doubt("arguments", "The query is not an object of names and texts.")
        found += ((str(name), _convert_text(one)) for one in values)
        if len(found) > MAX_PARAMETERS:
            raise _Doubt("arguments", "The query is too long.")
    return tuple(found)


def _convert_text(value: str | int | float) -> str:
    # Python refuses to write integers of more than 4,300 digits.
    return value if isinstance(value, str) else "0" if isinstance(value, int) else repr(value)


def build(config: Config, host: Host) -> HttpAssessor:  # noqa: ARG001 - what every plugin is built with
    return HttpAssessor(config)


PLUGIN = Plugin(Config, build, judges=("method", "url"))
