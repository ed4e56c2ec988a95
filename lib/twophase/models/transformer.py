"""A decoder-only transformer, composed of the kernels. One `Config` says what is built.

Parameter names are those of Llama checkpoints on Hugging Face, so that both can be read by the same
code.
"""

from typing import Protocol

import torch
from torch import nn

from twophase.kernels.kv_cache import KVCache, RaggedKVCache
from twophase.kernels.rope import rope_tables
from twophase.models.attention import Cache, GroupedQueryAttention, Step, Tables
from twophase.models.cache import LayerCaches
from twophase.models.config import Config
from twophase.models.latent_attention import LatentAttention
from twophase.models.linear_attention import LinearAttention
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.norm import RMSNorm, make_norm
from twophase.models.state_space import SelectiveStateSpace

__all__ = ["KINDS", "Config", "RMSNorm", "Transformer"]


class Mixer(Protocol):
    """What takes information from token to token: made of a config and the number of its layer."""

    def __call__(self, config: Config, layer: int) -> nn.Module: ...


KINDS: dict[str, Mixer] = {
    "gqa": GroupedQueryAttention,  # every key; MHA if K = N, MQA if K = 1
    "sliding": GroupedQueryAttention,  # the last `window` keys
    "mla": LatentAttention,
    "linear": LinearAttention,
    "ssm": SelectiveStateSpace,
}


def make_mlp(config: Config, layer: int) -> nn.Module:
    """The MLP of one layer."""
    if config.is_moe(layer):
        return MixtureOfExperts(config)
    return GatedMLP(config) if config.gated_mlp else PlainMLP(config)


class Block(nn.Module):
    """A mixer, then an MLP; each reads the normalized stream and adds to it.

    With four norms per layer (Gemma) what each of the two adds is normalized, too.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.four_norms = config.norms_per_layer == 4
        self.input_layernorm = make_norm(config)
        self.self_attn = KINDS[config.mixers[layer]](config, layer)
        self.post_attention_layernorm = make_norm(config)
        self.mlp = make_mlp(config, layer)
        if self.four_norms:
            self.pre_feedforward_layernorm = make_norm(config)
            self.post_feedforward_layernorm = make_norm(config)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        # What attention adds gets no name: a name would keep it in memory while the MLP runs.
        if self.four_norms:
            x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), step))
            return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))  # type: ignore[no-any-return]
        x = x + self.self_attn(self.input_layernorm(x), step)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens in, logits out. `forward` is the whole model in ten lines."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.V, config.D)
        if config.learned_positions:
            self.embed_positions = nn.Embedding(config.learned_positions, config.D)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.L))
        self.norm = make_norm(config)
        self.lm_head = nn.Linear(config.D, config.V, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        self.apply(self._init)

    def _init(self, module: nn.Module) -> None:
        """Normal weights of deviation 0.02; what is added to the stream is scaled down by the depth
        (GPT-2, section 2.3)."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, MixtureOfExperts | SelectiveStateSpace):
            module.reset_parameters()
        if isinstance(module, Block):
            for key, weight in module.named_parameters():
                if key.endswith(
                    ("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")
                ):
                    nn.init.normal_(weight, std=0.02 / (2 * self.config.L) ** 0.5)

    @property
    def n_params(self) -> int:
        """Numbers in the model; a tied output matrix counts once."""
        return sum(p.numel() for p in self.parameters())

    def new_cache(self, B: int, S_max: int) -> KVCache | LayerCaches:
        """An empty cache for B sequences of up to S_max tokens, in the dtype and on the device of
        the weights."""
        c, weight = self.config, self.embed_tokens.weight
        if not c.causal:
            raise ValueError(
                "a model that reads both ways has no cache: every new token changes what all others"
                " see."
            )
        if c.mixers == ("gqa",) * c.L and c.kv_source is None:
            return KVCache(c.L, B, S_max, c.K, c.H, dtype=weight.dtype, device=weight.device)
        return LayerCaches(c, B, S_max, weight.dtype, weight.device)

    def new_ragged_cache(self, B: int, S_max: int) -> RaggedKVCache:
        """The same for B sequences that each have a length of their own. ValueError but for stacks
        of full attention."""
        c, weight = self.config, self.embed_tokens.weight
        if c.mixers != ("gqa",) * c.L or c.kv_source is not None or not c.causal:
            why = (
                "reads both ways"
                if not c.causal
                else "shares keys between layers"
                if c.kv_source
                else ""
            )
            why = why or f"has layers of the kind {', '.join(sorted(set(c.mixers) - {'gqa'}))}"
            raise ValueError(
                "a ragged cache is for stacks of full attention with keys of their own; this model"
                f" {why}."
            )
        return RaggedKVCache(c.L, B, S_max, c.K, c.H, dtype=weight.dtype, device=weight.device)

    def forward(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
        n_new: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits [B, T, V] for the token after each of `tokens`, int64 [B, T].

        With a cache the tokens continue what it holds. `positions` ([T] or [B, T]) defaults to
        counting on from the cache. `n_new` [B], for a ragged cache only: how many of the T tokens
        of each sequence are real; logits of the others mean nothing. Raises ValueError if the cache
        has no room, before anything is written.
        """
        c = self.config
        if isinstance(cache, LayerCaches):
            cache.check_room(tokens.shape[1])
        if positions is None:
            positions = self._positions(tokens.shape[1], cache)  # [T] or [B, T]
        step = Step(self._rope(positions), cache, n_new)
        x = self.embed_tokens(tokens)  # [B, T, D]
        if c.embedding_scale != 1.0:
            x = x * torch.tensor(
                c.embedding_scale, dtype=x.dtype
            )  # rounded as the stream is, as Gemma was trained
        if c.learned_positions:
            if not positions.is_meta and int(positions.max()) >= c.learned_positions:
                raise ValueError(
                    f"this model has learned {c.learned_positions} positions and cannot read"
                    " further."
                )
            x = x + self.embed_positions(positions)  # [B, T, D]
        for block in self.layers:
            x = block(x, step)  # [B, T, D]
        logits = self.lm_head(self.norm(x))  # [B, T, V]
        return logits if c.logit_cap is None else c.logit_cap * torch.tanh(logits / c.logit_cap)

    def _positions(self, T: int, cache: Cache | None) -> torch.Tensor:
        """Positions of the next T tokens: [T], or [B, T] where every sequence has its own
        length."""
        count = torch.arange(T, device=self.embed_tokens.weight.device)  # [T]
        if isinstance(cache, RaggedKVCache):
            return cache.lengths[:, None] + count  # [B, T]
        return count if cache is None else count + cache.length  # [T]

    def _rope(self, positions: torch.Tensor) -> dict[str, Tables | None]:
        """Cosines and sines for each kind of layer, [T, H/2] or [B, T, H/2] each; None where
        nothing is turned."""
        c = self.config
        if c.learned_positions:
            return dict.fromkeys(KINDS)
        tables = rope_tables(positions, c.turned, c.rope_theta, c.rope_scaling)
        local = (
            tables
            if c.local_rope_theta is None
            else rope_tables(positions, c.turned, c.local_rope_theta)
        )
        linear = rope_tables(positions, c.linear.feature_dim, c.rope_theta) if c.linear else None
        return {"gqa": tables, "mla": tables, "sliding": local, "linear": linear, "ssm": None}
