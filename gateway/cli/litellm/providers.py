"""The providers of LiteLLM whose servers speak chat completions, and how each is reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Provider:
    """Hold the way to a provider. LiteLLM's `api_base` takes the place of `base_url`; `below` is added to it.

    `key` is the variable that LiteLLM reads its key from. `header` carries the key if it is not `Authorization`.
    `remark` is what an operator should know.
    """

    base_url: str | None = None
    key: str | None = None
    below: str = ""
    header: str | None = None
    remark: str | None = None


#: Further names of a provider.
SAME: Final[Mapping[str, str]] = MappingProxyType(
    {"custom_openai": "openai", "text-completion-openai": "openai", "ollama_chat": "ollama"}
)
PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
        "openai_like": Provider(),
        "litellm_proxy": Provider(key="LITELLM_PROXY_API_KEY"),
        "hosted_vllm": Provider(),
        "lm_studio": Provider(),
        "llamafile": Provider(),
        "ollama": Provider("http://localhost:11434", below="/v1"),
        "azure": Provider(
            key="AZURE_API_KEY",
            below="/openai/v1",
            header="api-key",
            remark="is asked by the v1 API of Azure, which needs no api_version",
        ),
        "anthropic": Provider(
            "https://api.anthropic.com/v1",
            "ANTHROPIC_API_KEY",
            remark="answers chat completions by its compatibility layer, without prompt caching",
        ),
        "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        "deepinfra": Provider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
        "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        "fireworks_ai": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
        "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        "nvidia_nim": Provider("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
        "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        "perplexity": Provider("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
        "sambanova": Provider("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
        "together_ai": Provider("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
        "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
    }
)
#: Providers of LiteLLM with an API of their own: the first part of a model's name, which is no part of a name else.
OTHERS: Final = frozenset(
    (
        *("ai21", "aleph_alpha", "azure_ai", "azure_text", "baseten", "bedrock", "bedrock_converse", "bytez"),
        *("cloudflare", "codestral", "cohere", "cohere_chat", "databricks", "gigachat", "github", "github_copilot"),
        *("huggingface", "jina_ai", "maritalk", "nlp_cloud", "oci", "petals", "predibase", "replicate", "sagemaker"),
        *("sagemaker_chat", "snowflake", "triton", "vertex_ai", "vertex_ai_beta", "vllm", "voyage", "watsonx"),
        *("watsonx_text", "xinference"),
    )
)
