"""The table of providers: each can be reached, none stands in both lists."""

from urllib.parse import urlsplit

from gateway.cli.litellm.providers import FAMILIES, OTHERS, PROVIDERS, SAME


def test_provider_base_urls_are_complete() -> None:
    """Without a slash at the end, encrypted unless they are of this machine."""
    for name, provider in PROVIDERS.items():
        if provider.base_url is not None:
            url = urlsplit(provider.base_url)
            assert url.scheme == "https" or url.hostname in ("localhost", "127.0.0.1"), name
            assert not (provider.base_url + provider.below).endswith("/")
            assert provider.below or url.path or name == "perplexity", name


def test_provider_has_exactly_one_api() -> None:
    assert not OTHERS & PROVIDERS.keys()
    assert not SAME.keys() & {*OTHERS, *PROVIDERS} and set(SAME.values()) <= PROVIDERS.keys()


def test_model_family_has_a_known_provider() -> None:
    assert {kind for _, kind in FAMILIES} <= {*OTHERS, *PROVIDERS}
