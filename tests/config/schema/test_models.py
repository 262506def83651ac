"""The section of aliases of models."""

from gateway.config.schema.settings import Settings


def test_alias_lists_its_models_in_file_order() -> None:
    """In the order of the file; an upstream is named, or found by the model."""
    use = [{"model": "gpt-4.1-mini", "upstream": "openai"}, {"model": "llama3"}]
    settings = Settings.model_validate({"models": {"fast": {"use": use}}})
    assert [(one.model, one.upstream) for one in settings.models["fast"].use] == [
        ("gpt-4.1-mini", "openai"),
        ("llama3", None),
    ]
    assert Settings.model_validate({}).models == {} and Settings.model_validate({}).context.models == "upstream"
