"""The models of the catalog. Sizes are those of the published config.json files, GPT-3's those of
its paper."""

from dataclasses import replace

from twophase.theory.architecture import Architecture
from twophase.theory.sizes import LatentAttention, MixtureOfExperts

WORKED = Architecture(
    "worked-18b",
    L=64,
    D=4096,
    F=16384,
    N=32,
    K=8,
    H=256,
    V=32128,
    tied_embeddings=True,
    max_context=131072,
)
WORKED_MOE = replace(WORKED, name="worked-moe", moe=MixtureOfExperts(E=16, k=2, F=16384))

LLAMA_2_7B = Architecture(
    "llama-2-7b", L=32, D=4096, F=11008, N=32, K=32, H=128, V=32000, max_context=4096
)
LLAMA_2_13B = replace(LLAMA_2_7B, name="llama-2-13b", L=40, D=5120, F=13824, N=40, K=40)
LLAMA_2_70B = replace(LLAMA_2_7B, name="llama-2-70b", L=80, D=8192, F=28672, N=64, K=8)
LLAMA_3_8B = Architecture(
    "llama-3-8b",
    L=32,
    D=4096,
    F=14336,
    N=32,
    K=8,
    H=128,
    V=128256,
    max_context=8192,
    rope_theta=500000.0,
)
LLAMA_3_70B = replace(LLAMA_3_8B, name="llama-3-70b", L=80, D=8192, F=28672, N=64)
LLAMA_31_8B = replace(LLAMA_3_8B, name="llama-3.1-8b", max_context=131072)
LLAMA_31_70B = replace(LLAMA_3_70B, name="llama-3.1-70b", max_context=131072)

MISTRAL_7B = Architecture(
    "mistral-7b",
    L=32,
    D=4096,
    F=14336,
    N=32,
    K=8,
    H=128,
    V=32000,
    attention="sliding",
    window=4096,
    max_context=32768,
)
MIXTRAL_8X7B = replace(
    MISTRAL_7B,
    name="mixtral-8x7b",
    attention="full",
    window=None,
    moe=MixtureOfExperts(E=8, k=2, F=14336),
    rope_theta=1e6,
)

DEEPSEEK_V2 = Architecture(
    "deepseek-v2",
    L=60,
    D=5120,
    F=12288,
    N=128,
    K=128,
    H=192,
    V=102400,
    attention="mla",
    mla=LatentAttention(R=512, rope_dim=64, nope_dim=128, v_dim=128, q_rank=1536),
    moe=MixtureOfExperts(E=160, k=6, F=1536, n_shared=2, n_dense_layers=1),
    max_context=163840,
    norm_eps=1e-6,
)
DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    name="deepseek-v3",
    L=61,
    D=7168,
    F=18432,
    V=129280,
    moe=MixtureOfExperts(E=256, k=8, F=2048, n_shared=1, n_dense_layers=3, router_bias=True),
)

GPT_3 = Architecture(
    "gpt-3",
    L=96,
    D=12288,
    F=49152,
    N=96,
    K=96,
    H=128,
    V=50257,
    tied_embeddings=True,
    gated_mlp=False,
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm="layer",
    learned_positions=2048,
    max_context=2048,
    activation="gelu_tanh",
)


def _alternating(L: int, period: int) -> tuple[str, ...]:
    """Every `period`-th layer is full, the others slide."""
    return tuple("full" if (i + 1) % period == 0 else "sliding" for i in range(L))


def _gemma_2(name: str, L: int, D: int, F: int, N: int, K: int, H: int) -> Architecture:
    return Architecture(
        name,
        L=L,
        D=D,
        F=F,
        N=N,
        K=K,
        H=H,
        V=256000,
        tied_embeddings=True,
        norms_per_layer=4,
        attention=_alternating(L, 2),
        window=4096,
        max_context=8192,
        norm_eps=1e-6,
        activation="gelu_tanh",
    )


def _gemma_3(
    name: str, L: int, D: int, F: int, N: int, K: int, H: int, V: int, window: int
) -> Architecture:
    return replace(
        _gemma_2(name, L, D, F, N, K, H),
        V=V,
        qk_norm=True,
        attention=_alternating(L, 6),
        window=window,
        max_context=32768 if L == 26 else 131072,
        rope_theta=1e6,
    )


def _qwen_3(name: str, L: int, D: int, F: int, N: int, K: int, tied: bool) -> Architecture:
    return Architecture(
        name,
        L=L,
        D=D,
        F=F,
        N=N,
        K=K,
        H=128,
        V=151936,
        tied_embeddings=tied,
        qk_norm=True,
        max_context=40960,
        rope_theta=1e6,
        norm_eps=1e-6,
    )


def _gpt_oss(name: str, L: int, E: int) -> Architecture:
    return Architecture(
        name,
        L=L,
        D=2880,
        F=2880,
        N=64,
        K=8,
        H=64,
        V=201088,
        qkv_bias=True,
        o_bias=True,
        sinks=True,
        attention=_alternating(L, 2),
        window=128,
        moe=MixtureOfExperts(E=E, k=4, F=2880, router_bias=True, bias=True),
        max_context=131072,
        rope_theta=150000.0,
    )


MODELS = (
    WORKED,
    WORKED_MOE,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_31_8B,
    LLAMA_31_70B,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    _gemma_2("gemma-2-9b", L=42, D=3584, F=14336, N=16, K=8, H=256),
    _gemma_2("gemma-2-27b", L=46, D=4608, F=36864, N=32, K=16, H=128),
    _gemma_3("gemma-3-1b", L=26, D=1152, F=6912, N=4, K=1, H=256, V=262144, window=512),
    _gemma_3("gemma-3-4b", L=34, D=2560, F=10240, N=8, K=4, H=256, V=262208, window=1024),
    _gemma_3("gemma-3-12b", L=48, D=3840, F=15360, N=16, K=8, H=256, V=262208, window=1024),
    _gemma_3("gemma-3-27b", L=62, D=5376, F=21504, N=32, K=16, H=128, V=262208, window=1024),
    _qwen_3("qwen3-0.6b", L=28, D=1024, F=3072, N=16, K=8, tied=True),
    _qwen_3("qwen3-1.7b", L=28, D=2048, F=6144, N=16, K=8, tied=True),
    _qwen_3("qwen3-4b", L=36, D=2560, F=9728, N=32, K=8, tied=True),
    _qwen_3("qwen3-8b", L=36, D=4096, F=12288, N=32, K=8, tied=False),
    _qwen_3("qwen3-14b", L=40, D=5120, F=17408, N=40, K=8, tied=False),
    _qwen_3("qwen3-32b", L=64, D=5120, F=25600, N=64, K=8, tied=False),
    replace(
        _qwen_3("qwen3-30b-a3b", L=48, D=2048, F=6144, N=32, K=4, tied=False),
        moe=MixtureOfExperts(E=128, k=8, F=768),
    ),
    replace(
        _qwen_3("qwen3-235b-a22b", L=94, D=4096, F=12288, N=64, K=4, tied=False),
        moe=MixtureOfExperts(E=128, k=8, F=1536),
    ),
    _gpt_oss("gpt-oss-20b", L=24, E=32),
    _gpt_oss("gpt-oss-120b", L=36, E=128),
    GPT_3,
)
