"""A decoder-only transformer, composed of the kernels: RMSNorm, RoPE, grouped-query attention, gated MLP.

One `Config` says what is built. Parameter names are those of Llama checkpoints on Hugging Face, so that both can be
read by the same code.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from twophase.kernels.attention import causal_attention
from twophase.kernels.kv_cache import KVCache, RaggedKVCache
from twophase.kernels.mlp import gated_mlp
from twophase.kernels.norm import rms_norm
from twophase.kernels.rope import apply_rope, rope_tables
from twophase.theory.architecture import Architecture

Cache = KVCache | RaggedKVCache
Tables = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Config:
    """The shape of a model, in the letters of the notation page. Raises ValueError where the shape is impossible."""

    L: int  # layers
    D: int  # width of the residual stream
    F: int  # width inside the gated MLP
    N: int  # query heads
    K: int  # KV heads: K = N is multi-head, K = 1 multi-query, between them grouped-query attention
    H: int  # width of a head; N·H need not be D
    V: int = 256  # vocabulary: one token per byte
    rope_theta: float = 10_000.0  # base of the RoPE frequencies
    rope_pairing: str = "half"  # how RoPE pairs numbers: "half" or "interleaved"
    norm_eps: float = 1e-6
    tied: bool = True  # the output matrix is the embedding
    context: int = 256  # tokens per training sequence; longer runs work, but were not trained
    attention: str = "gqa"  # the kind of attention; "gqa" covers MHA and MQA

    def __post_init__(self) -> None:
        if min(self.L, self.D, self.F, self.N, self.K, self.H, self.V) < 1:
            raise ValueError(f"every size of a model must be at least 1; got {self}.")
        if self.N % self.K:
            raise ValueError(f"the {self.N} query heads cannot be shared evenly among {self.K} KV heads.")
        if self.H % 2:
            raise ValueError(f"RoPE turns pairs of numbers, so the head width must be even; it is {self.H}.")
        if self.attention not in KINDS:
            raise ValueError(f'unknown attention kind "{self.attention}"; known: {", ".join(sorted(KINDS))}.')

    @property
    def G(self) -> int:
        """Query heads per KV head."""
        return self.N // self.K

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a model card."""
        return asdict(self)

    def architecture(self, name: str = "") -> Architecture:
        """The same sizes as the record that `twophase.theory` computes with."""
        return Architecture(
            name=name,
            L=self.L,
            D=self.D,
            F=self.F,
            N=self.N,
            K=self.K,
            H=self.H,
            V=self.V,
            tied_embeddings=self.tied,
            max_context=self.context,
            rope_theta=self.rope_theta,
            norm_eps=self.norm_eps,
        )


class GroupedQueryAttention(nn.Module):
    """N query heads over K shared KV heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.q_proj = nn.Linear(c.D, c.N * c.H, bias=False)
        self.k_proj = nn.Linear(c.D, c.K * c.H, bias=False)
        self.v_proj = nn.Linear(c.D, c.K * c.H, bias=False)
        self.o_proj = nn.Linear(c.N * c.H, c.D, bias=False)

    def forward(
        self, x: torch.Tensor, rope: Tables, cache: Cache | None, layer: int, n_new: torch.Tensor | None
    ) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens also see what it holds, and are appended to it."""
        c = self.config
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, c.N, c.H)  # [B, T, N, H]
        k = self.k_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
        v = self.v_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
        q, k = (apply_rope(y, *rope, pairing=c.rope_pairing) for y in (q, k))
        if isinstance(cache, RaggedKVCache):
            k, v, starts, lengths = cache.append(layer, k, v, n_new)  # [B, S, K, H]
            out = causal_attention(q, k, v, lengths=lengths, starts=starts)  # [B, T, N, H]
        else:
            if cache is not None:
                k, v = cache.append(layer, k, v)  # [B, S, K, H]
            out = causal_attention(q, k, v)  # [B, T, N, H]
        return self.o_proj(out.reshape(B, T, c.N * c.H))  # type: ignore[no-any-return]  # [B, T, D]


class GatedMLP(nn.Module):
    """SwiGLU: D → F twice, F → D once."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.D, config.F, bias=False)
        self.up_proj = nn.Linear(config.D, config.F, bias=False)
        self.down_proj = nn.Linear(config.F, config.D, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        return gated_mlp(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)


class RMSNorm(nn.Module):
    """`rms_norm` with its weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.D))
        self.eps = config.norm_eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., D] → [..., D]."""
        return rms_norm(x, self.weight, self.eps)


KINDS: dict[str, type[nn.Module]] = {"gqa": GroupedQueryAttention}


class Block(nn.Module):
    """Attention, then MLP; each reads the normalized stream and adds to it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config)
        self.self_attn = KINDS[config.attention](config)
        self.post_attention_layernorm = RMSNorm(config)
        self.mlp = GatedMLP(config)

    def forward(
        self, x: torch.Tensor, rope: Tables, cache: Cache | None, layer: int, n_new: torch.Tensor | None
    ) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        x = x + self.self_attn(self.input_layernorm(x), rope, cache, layer, n_new)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens in, logits out. `forward` is the whole model in six lines."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.V, config.D)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.L))
        self.norm = RMSNorm(config)
        self.lm_head = nn.Linear(config.D, config.V, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        self.apply(self._init)

    def _init(self, module: nn.Module) -> None:
        """Normal weights of deviation 0.02; what is added to the stream is scaled down by the depth (GPT-2, section 2.3)."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, Block):
            for key, weight in module.named_parameters():
                if key in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
                    nn.init.normal_(weight, std=0.02 / (2 * self.config.L) ** 0.5)

    @property
    def n_params(self) -> int:
        """Numbers in the model; a tied output matrix counts once."""
        return sum(p.numel() for p in self.parameters())

    def new_cache(self, B: int, S_max: int) -> KVCache:
        """An empty cache for B sequences of up to S_max tokens, in the dtype and on the device of the weights."""
        c, weight = self.config, self.embed_tokens.weight
        return KVCache(c.L, B, S_max, c.K, c.H, dtype=weight.dtype, device=weight.device)

    def new_ragged_cache(self, B: int, S_max: int) -> RaggedKVCache:
        """The same for B sequences that each have a length of their own."""
        c, weight = self.config, self.embed_tokens.weight
        return RaggedKVCache(c.L, B, S_max, c.K, c.H, dtype=weight.dtype, device=weight.device)

    def forward(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
        n_new: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits [B, T, V] for the token after each of `tokens`, int64 [B, T].

        With a cache the tokens continue what it holds. `positions` ([T] or [B, T]) defaults to counting on from the
        cache. `n_new` [B], for a ragged cache only: how many of the T tokens of each sequence are real; logits of the
        others mean nothing. Raises ValueError if the cache has no room, before anything is written.
        """
        if positions is None:
            positions = self._positions(tokens.shape[1], cache)  # [T] or [B, T]
        rope = rope_tables(positions, self.config.H, self.config.rope_theta)  # [T, H/2] or [B, T, H/2] each
        x = self.embed_tokens(tokens)  # [B, T, D]
        for layer, block in enumerate(self.layers):
            x = block(x, rope, cache, layer, n_new)  # [B, T, D]
        return self.lm_head(self.norm(x))  # type: ignore[no-any-return]  # [B, T, V]

    def _positions(self, T: int, cache: Cache | None) -> torch.Tensor:
        """Positions of the next T tokens: [T], or [B, T] where every sequence has its own length."""
        count = torch.arange(T, device=self.embed_tokens.weight.device)  # [T]
        if isinstance(cache, RaggedKVCache):
            return cache.lengths[:, None] + count  # [B, T]
        return count if cache is None else count + cache.length  # [T]
