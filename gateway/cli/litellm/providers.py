"""The providers of LiteLLM whose servers speak chat completions, and how each is reached."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.contracts.model_apis import ApiName


@dataclass(frozen=True, slots=True)
class Provider:
    """Hold the way to a provider. LiteLLM's `api_base` takes the place of `base_url`; `below` is added to it.

    `key` is the variable that LiteLLM reads its key from, `bases` are variables that it reads an address from. `header`
    carries the key if it is not `Authorization`. `remark` is what an operator should know. Models are asked by `api`.
    """

    base_url: str | None = None
    key: str | None = None
    bases: tuple[str, ...] = ()
    below: str = ""
    header: str | None = None
    remark: str | None = None
    api: ApiName = "chat"


#: Further names of a provider.
SAME: Final[Mapping[str, str]] = MappingProxyType(
    {"custom_openai": "openai", "text-completion-openai": "openai", "ollama_chat": "ollama"}
)
PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
        "openai_like": Provider(bases=("OPENAI_LIKE_API_BASE",)),
        "litellm_proxy": Provider(key="LITELLM_PROXY_API_KEY", bases=("LITELLM_PROXY_API_BASE",)),
        "hosted_vllm": Provider(bases=("HOSTED_VLLM_API_BASE",)),
        "lm_studio": Provider(bases=("LM_STUDIO_API_BASE",)),
        "llamafile": Provider("http://127.0.0.1:8080/v1", bases=("LLAMAFILE_API_BASE",)),
        "ollama": Provider("http://localhost:11434", bases=("OLLAMA_API_BASE",), below="/v1"),
        "azure": Provider(
            key="AZURE_API_KEY",
            bases=("AZURE_API_BASE",),
            below="/openai/v1",
            header="api-key",
            remark="is asked by the v1 API of Azure, which needs no api_version",
        ),
        "anthropic": Provider(
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
            below="/v1",
            remark="is asked by Messages in context mode. In passthrough it answers chat completions by its "
            "compatibility layer, without prompt caching",
            api="messages",
        ),
        "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", ("CEREBRAS_API_BASE",)),
        "dashscope": Provider(
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY", ("DASHSCOPE_API_BASE",)
        ),
        "deepinfra": Provider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", ("DEEPINFRA_API_BASE",)),
        "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", ("DEEPSEEK_API_BASE",)),
        "fireworks_ai": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", ("FIREWORKS_API_BASE",)),
        "gemini": Provider(
            "https://generativelanguage.googleapis.com", "GEMINI_API_KEY", ("GEMINI_API_BASE",), "/v1beta/openai"
        ),
        "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY", ("GROQ_API_BASE",)),
        "mistral": Provider(
            "https://api.mistral.ai", "MISTRAL_API_KEY", ("MISTRAL_AZURE_API_BASE", "MISTRAL_API_BASE"), "/v1"
        ),
        "moonshot": Provider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", ("MOONSHOT_API_BASE",)),
        "nebius": Provider("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY", ("NEBIUS_API_BASE",)),
        "novita": Provider("https://api.novita.ai/v3/openai", "NOVITA_API_KEY", ("NOVITA_API_BASE",)),
        "nvidia_nim": Provider("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY", ("NVIDIA_NIM_API_BASE",)),
        "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ("OPENROUTER_API_BASE",)),
        "perplexity": Provider("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", ("PERPLEXITY_API_BASE",)),
        "sambanova": Provider("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY", ("SAMBANOVA_API_BASE",)),
        "together_ai": Provider("https://api.together.xyz/v1", "TOGETHERAI_API_KEY", ("TOGETHER_AI_API_BASE",)),
        "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY", ("XAI_API_BASE",)),
        "zai": Provider("https://api.z.ai/api/paas/v4", "ZAI_API_KEY", ("ZAI_API_BASE",)),
    }
)
#: Models whose provider LiteLLM knows by their name alone, by the start of it (its table of models, 1.110.2).
FAMILIES: Final = (
    (
        re.compile(
            r"(ft:)?(gpt-(?!oss)|chatgpt-|o[0-9](-|\Z)|text-embedding-(3-|ada-)|dall-e-|whisper-1|tts-1|davinci-002"
            r"|babbage-002|omni-moderation-|computer-use-preview|codex-|sora-)"
        ),
        "openai",
    ),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-|text-embedding-00|text-(bison|unicorn)|multimodalembedding"), "vertex_ai"),
    (re.compile(r"command|c4ai-|embed-|rerank-"), "cohere"),
    (re.compile(r"((us|eu|apac|global)\.)?(amazon|anthropic|ai21|cohere|meta|mistral|deepseek|writer)\."), "bedrock"),
    (re.compile(r"j2-|jamba-"), "ai21"),
)
#: Providers of LiteLLM with an API of their own: the first part of a model's name, which other names do not have.
OTHERS: Final = frozenset(
    (
        *("ai21", "aleph_alpha", "azure_ai", "azure_text", "baseten", "bedrock", "bedrock_converse", "bytez"),
        *("cloudflare", "codestral", "cohere", "cohere_chat", "databricks", "gigachat", "github", "github_copilot"),
        *("huggingface", "jina_ai", "maritalk", "nlp_cloud", "oci", "petals", "predibase", "replicate", "sagemaker"),
        *("sagemaker_chat", "snowflake", "triton", "vertex_ai", "vertex_ai_beta", "vllm", "voyage", "watsonx"),
        *("watsonx_text", "xinference"),
    )
)
