"""The checks that features declare."""

from gateway.config.feature_checks import collect_checks
from gateway.features.registry import list_features


def test_each_feature_with_checks_is_collected_once() -> None:
    found = list(collect_checks())
    assert len(found) == len({id(one) for one in found}) == len(list_features("checks"))


def test_features_name_the_headers_that_may_come_from_files() -> None:
    assert [path for one in collect_checks() for path in one.secret_headers] == [("tracing", "headers")]
