"""Keys and tokens by their looks; none here is anybody's."""

import pytest

from gateway.plugins.assessors.http.secret_values import is_secret_value, names_credential

LETTERS = "Ab3" * 20


@pytest.mark.parametrize(
    "text",
    [
        *(f"ghp_{LETTERS[:36]}", f"github_pat_{LETTERS}", f"glpat-{LETTERS[:20]}", f"sk-proj-{LETTERS}"),
        *(f"AKIA{'A1' * 8}", f"AIza{LETTERS[:35]}", f"xoxb-{'1' * 12}-{LETTERS[:20]}", f"hf_{LETTERS[:34]}"),
        *(f"q=sk_live_{LETTERS[:24]}", f"/bot123456789:{LETTERS[:35]}/sendMessage"),
        *(
            f"eyJ{LETTERS[:20]}.eyJ{LETTERS[:20]}.{LETTERS}",
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY",
        ),
    ],
)
def test_key_or_token_is_recognised_by_its_format(text: str) -> None:
    """Wherever it stands in the text."""
    assert is_secret_value(text)
    assert is_secret_value(f"a {text} b")


@pytest.mark.parametrize("text", ["", "python", "task-" + LETTERS, "eyJ.eyJ.", LETTERS * 100, "ghp_short", "SG.1.2"])
def test_ordinary_text_is_not_taken_for_a_secret(text: str) -> None:
    """Nor is a long word that only begins in the middle like one."""
    assert not is_secret_value(text)


def test_credential_parameter_names_are_recognised() -> None:
    """In any case; a token for the next page is none."""
    assert names_credential("API_KEY") and names_credential("X-Amz-Signature")
    assert not names_credential("page_token") and not names_credential("q")
