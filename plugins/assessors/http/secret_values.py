"""Secrets by their looks: keys and tokens of well-known services, and their usual parameter names in URLs."""

import re
from typing import Final

from gateway.plugin.word_lists import split_words

#: Prefixes that their issuers chose so that scanners find them, and what stands in every private key.
_VALUE: Final = re.compile(
    r"""
    (?<![A-Za-z0-9_-])(?:
        gh[pousr]_[A-Za-z0-9]{20} | github_pat_[A-Za-z0-9_]{20} | glpat-[A-Za-z0-9_-]{16}
      | sk-[A-Za-z0-9_-]{20} | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16}
      | A(?:KIA|SIA)[A-Z0-9]{16} | AIza[A-Za-z0-9_-]{30} | ya29\.[A-Za-z0-9_-]{20}
      | xox[abeoprs]-[A-Za-z0-9-]{10} | hf_[A-Za-z0-9]{30} | npm_[A-Za-z0-9]{30} | pypi-[A-Za-z0-9_-]{30}
      | SG\.[A-Za-z0-9_-]{16}\. | dop_v1_[a-f0-9]{30} | bot[0-9]{6,12}:[A-Za-z0-9_-]{30}
      | eyJ[A-Za-z0-9_-]{8,2000}+\.eyJ[A-Za-z0-9_-]{8,2000}+\.
    )
    | -----BEGIN[ +][A-Z +]{0,40}PRIVATE
    """,
    re.VERBOSE,
)
_NAMES: Final = split_words("""
    token access_token refresh_token id_token auth_token api_token private_token bearer_token session_token
    personal_access_token api_key apikey api-key x-api-key app_key client_secret secret secret_key api_secret
    password passwd pwd passphrase auth authorization jwt sig signature sessionid session_id phpsessid
    x-amz-signature x-amz-credential x-amz-security-token x-goog-signature x-goog-credential
""")


def is_secret_value(text: str) -> bool:
    """Return whether a key or token of a well-known kind stands in the text."""
    return _VALUE.search(text) is not None


def names_credential(name: str) -> bool:
    """Return whether a URL parameter with this name carries a credential. A `page_token` carries none."""
    return name.strip().lower() in _NAMES
