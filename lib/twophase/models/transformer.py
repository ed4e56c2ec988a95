"""A decoder-only transformer, composed of the kernels. One `Config` says what is built.

Parameter names are those of Llama checkpoints on Hugging Face, so that both can be read by the same
code.
"""

from collections.abc import Callable

import torch
from torch import nn

from twophase.kernels.rope import rope_tables
from twophase.kernels.span import Span
from twophase.models.attention import GroupedQueryAttention
from twophase.models.cache import Cache, Counts
from twophase.models.config import Config
from twophase.models.latent_attention import LatentAttention
from twophase.models.linear import Linear
from twophase.models.linear_attention import LinearAttention
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.norm import RMSNorm, make_norm
from twophase.models.state_space import SelectiveStateSpace
from twophase.models.step import Step, Tables, among_real, check_at, check_positions
from twophase.models.stores import new_cache

__all__ = ["KINDS", "Config", "RMSNorm", "Transformer"]


# What takes information from token to token: made of a config and the number of its layer.
KINDS: dict[str, Callable[[Config, int], nn.Module]] = {
    "gqa": GroupedQueryAttention,  # every key; MHA if K = N, MQA if K = 1
    "sliding": GroupedQueryAttention,  # the last `window` keys
    "mla": LatentAttention,
    "linear": LinearAttention,
    "ssm": SelectiveStateSpace,
}


class Block(nn.Module):
    """A mixer, then an MLP; each reads the normalized stream and adds to it.

    With four norms per layer (Gemma) what each of the two adds is normalized, too.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        c = config.at(layer)
        self.four_norms = c.norms_per_layer == 4
        self.input_layernorm = make_norm(c)
        self.self_attn = KINDS[c.mixers[layer]](c, layer)
        self.post_attention_layernorm = make_norm(c)
        plain = GatedMLP if c.gated_mlp else PlainMLP
        self.mlp = MixtureOfExperts(c) if c.is_moe(layer) else plain(c)
        if self.four_norms:
            self.pre_feedforward_layernorm = make_norm(c)
            self.post_feedforward_layernorm = make_norm(c)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        # What attention adds gets no name: a name would keep it in memory while the MLP runs.
        if self.four_norms:
            x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), step))
            return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))  # type: ignore[no-any-return]
        x = x + self.self_attn(self.input_layernorm(x), step)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens in, logits out: `hidden` is the whole model, `logits` its head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.V, config.D)
        if config.learned_positions:
            self.embed_positions = nn.Embedding(config.learned_positions, config.D)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.L))
        self.norm = make_norm(config)
        self.lm_head = Linear(config.D, config.V)
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
            added = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")
            for name, weight in module.named_parameters():
                if name.endswith(added):
                    nn.init.normal_(weight, std=0.02 / (2 * self.config.L) ** 0.5)

    @property
    def n_params(self) -> int:
        """Numbers in the model; a tied output matrix counts once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.embed_tokens.weight.device

    def new_cache(
        self, B: int, S_max: int, *, rollback: int = 0, dtype: torch.dtype | None = None
    ) -> Cache:
        """An empty cache for B sequences of up to S_max tokens, each of a length of its own.

        `rollback`: tokens that layers with a window or a state can take back. `dtype`: of keys,
        values and latents; that of the weights if not said (states are fp32 always). ValueError for
        a model that reads both ways, or sizes and a dtype that no cache can have.
        """
        dtype = dtype or self.embed_tokens.weight.dtype
        return new_cache(self.config, B, S_max, rollback, dtype, self.device)

    def forward(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
        n_new: Counts | None = None,
        *,
        at: torch.Tensor | int | None = None,
        tree: torch.Tensor | None = None,
        commit: bool = True,
    ) -> torch.Tensor:
        """Logits [B, T, V] for the token after each of `tokens`, int64 [B, T]; with `at`, as in
        `logits`, [B, V], where -1 is the last of the real tokens. The rest as in `hidden`."""
        with _grad(cache):
            span = self._span(tokens, cache, n_new, tree)
            if at is not None:
                at = among_real(at, span)
            logits = self.logits(self._stream(tokens, span, cache, positions), at)
            if cache is not None and commit:
                cache.commit()
        return logits

    def hidden(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
        n_new: Counts | None = None,
        *,
        tree: torch.Tensor | None = None,
        commit: bool = True,
    ) -> torch.Tensor:
        """The stream after the last norm, [B, T, D].

        With a cache the tokens continue what it holds, and stay in it; `commit=False` leaves it to
        the caller to `cache.commit` how many of them. No gradient goes through a pass with a cache.
        `n_new`, with a cache only: how many of the T tokens of each sequence are real; what comes
        out for the others means nothing. `positions` ([T] or [B, T]) defaults to counting on.
        `tree`: bool [T, T], which of the new tokens each one sees, for drafts that branch. Raises
        ValueError if the cache has no room, before anything is written.
        """
        with _grad(cache):
            span = self._span(tokens, cache, n_new, tree)
            x = self._stream(tokens, span, cache, positions)  # [B, T, D]
            if cache is not None and commit:
                cache.commit()
        return x

    def _stream(
        self,
        tokens: torch.Tensor,
        span: Span,
        cache: Cache | None,
        positions: torch.Tensor | None,
    ) -> torch.Tensor:
        """The stream after the last norm, [B, T, D], of a span that was begun."""
        try:
            positions = span.positions if positions is None else positions  # [T] or [B, T]
            check_positions(positions, span, self.config.learned_positions)
            step = Step(span, self.rope(positions), cache, self.config.causal)
            x = self.embed(tokens, positions)  # [B, T, D]
            if span.real is not None:  # what pads a sequence may be NaN, and 0·NaN is NaN
                x = x.masked_fill(~span.real[..., None], 0.0)
            for block in self.layers:
                x = block(x, step)  # [B, T, D]
            return self.norm(x)  # type: ignore[no-any-return]  # [B, T, D]
        except BaseException:  # Ctrl-C, too: what is half written is not to be committed
            if cache is not None:
                cache.discard()
            raise

    def logits(self, hidden: torch.Tensor, at: torch.Tensor | int | None = None) -> torch.Tensor:
        """Logits of hidden states [B, T, D]: [B, T, V], or [B, V] of the token `at`, a number for
        all sequences (-1: the last) or one for each, int64 [B]. ValueError for another `at`.

        At V of 128,256 all logits of a long prompt cost more than the rest of a small model.
        """
        if at is not None:
            check_at(at, *hidden.shape[:2])
        if isinstance(at, int):
            hidden = hidden[:, at]  # [B, D]
        elif at is not None:
            hidden = hidden[torch.arange(len(hidden), device=hidden.device), at]  # [B, D]
        logits = self.lm_head(hidden)  # [B, T, V] or [B, V]
        cap = self.config.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _span(
        self,
        tokens: torch.Tensor,
        cache: Cache | None,
        n_new: Counts | None,
        tree: torch.Tensor | None,
    ) -> Span:
        """Where the tokens go. ValueError for what are no tokens, or not that many."""
        ints = (torch.int64, torch.int32)
        if not isinstance(tokens, torch.Tensor) or tokens.ndim != 2 or tokens.dtype not in ints:
            found = getattr(tokens, "dtype", type(tokens).__name__)
            raise ValueError(
                "tokens are whole numbers in a tensor [B, T]; got"
                f" {found} {list(getattr(tokens, 'shape', []))}."
            )
        _check_places(tokens, cache, self.device)
        if cache is not None and not hasattr(cache, "begin"):
            raise ValueError(
                f"a cache comes from `new_cache` of its own model; got {type(cache).__name__}."
            )
        B, T = tokens.shape
        if not B:
            raise ValueError("a forward pass needs at least one sequence; got none.")
        if cache is not None:
            return cache.begin(B, T, n_new, tree)
        if n_new is not None:
            raise ValueError(
                "n_new says how many tokens of each sequence go into a cache, and there is none:"
                " give one, or run each sequence by itself."
            )
        return Span((0,) * B, (T,) * B, T, self.device, tree)

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The stream's start: [B, T, D]. ValueError for a token that is none (on a GPU torch ends
        the program)."""
        c = self.config
        try:
            x = self.embed_tokens(tokens)  # [B, T, D]
        except IndexError:
            raise ValueError(f"a token is outside the vocabulary: 0 to {c.V - 1}.") from None
        if c.embedding_scale != 1.0:  # rounded as the stream is, as Gemma was trained
            x = x * torch.tensor(c.embedding_scale, dtype=x.dtype, device="cpu")
        if c.learned_positions:  # what pads a block may stand beyond the table
            x = x + self.embed_positions(positions.clamp(max=c.learned_positions - 1))
        return x  # type: ignore[no-any-return]

    def rope(self, positions: torch.Tensor) -> dict[str, Tables | None]:
        """Cosines and sines for each kind of layer, [T, H/2] or [B, T, H/2] each; None where
        nothing is turned."""
        c = self.config
        if c.learned_positions:
            return dict.fromkeys(KINDS)
        tables = rope_tables(positions, c.turned, c.rope_theta, c.rope_scaling)
        local = tables
        if c.local_rope_theta is not None:
            local = rope_tables(positions, c.turned, c.local_rope_theta)
        linear = rope_tables(positions, c.linear.feature_dim, c.rope_theta) if c.linear else None
        return {"gqa": tables, "mla": tables, "sliding": local, "linear": linear, "ssm": None}


def _grad(cache: Cache | None) -> torch.set_grad_enabled:
    """A cache keeps numbers, not how they came about: no pass through one is differentiated."""
    return torch.set_grad_enabled(cache is None and torch.is_grad_enabled())


def _check_places(tokens: torch.Tensor, cache: Cache | None, device: torch.device) -> None:
    """ValueError unless tokens and cache are where the model is."""
    if tokens.device != device:
        raise ValueError(
            f"tokens on {tokens.device} for a model on {device}: move them there first."
        )
    there = getattr(cache, "device", None)  # None: whoever made the cache did not say
    if there is not None and torch.device(there) != device:
        raise ValueError(
            f"a cache on {there} for a model on {device}: make one with `new_cache` of the model"
            " where it is."
        )
