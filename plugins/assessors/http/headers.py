"""The headers that are harmless in a reading request: an allow-list, and the headers that carry credentials."""

import re

from gateway.plugin.word_lists import split_words

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Tab and printable ASCII: others may be turned into line ends when they are cut down to bytes.
_VALUE = re.compile(r"[\t -~]*")
MAX_VALUE_CHARS = 4_096

HARMLESS = split_words("""
    accept accept-charset accept-encoding accept-language accept-datetime accept-ch a-im cache-control pragma range
    if-match if-none-match if-modified-since if-unmodified-since if-range user-agent referer origin date dnt sec-gpc
    save-data downlink ect rtt device-memory dpr viewport-width width priority upgrade-insecure-requests
    content-type prefer x-requested-with x-request-id request-id x-correlation-id correlation-id x-trace-id
    traceparent tracestate baggage b3 x-b3-traceid x-b3-spanid x-b3-parentspanid x-b3-sampled x-amzn-trace-id
    x-client-version x-client-name x-api-version api-version x-github-api-version x-version anthropic-version
    openai-beta x-locale x-timezone x-language x-page x-per-page x-pagination access-control-request-method
    x-tenant-id x-tenant x-organization-id x-org-id x-workspace-id x-project-id x-account-id openai-organization
    openai-project access-control-request-headers sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user sec-ch-ua
    sec-ch-ua-mobile sec-ch-ua-platform from
""")
CREDENTIALS = split_words("""
    authorization cookie x-api-key api-key apikey x-auth-token x-access-token x-csrf-token x-xsrf-token
    private-token x-github-token x-gitlab-token x-goog-api-key x-rapidapi-key x-subscription-token
    ocp-apim-subscription-key x-vault-token x-token x-auth-key x-functions-key x-amz-security-token x-session-token
    x-figma-token notion-version
""")


def find_header_doubt(name: str, value: str) -> str | None:
    """Return why a person must decide on this header. None: it is harmless or carries a credential.

    `carries_credential` recognises the credentials.
    """
    if not _TOKEN.fullmatch(name):
        return "a header name has characters that no header name may have"
    if len(value) > MAX_VALUE_CHARS or not _VALUE.fullmatch(value):
        return "a header value has line ends or unusual characters, or is very long"
    # Many servers read `_` as `-`.
    plain = name.lower().replace("_", "-")
    if plain not in HARMLESS and plain not in CREDENTIALS:
        return f"the header {name[:40]!r} may change what the request does"
    return None


def carries_credential(name: str) -> bool:
    return name.lower().replace("_", "-") in CREDENTIALS
