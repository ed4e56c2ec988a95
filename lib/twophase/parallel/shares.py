"""Which part of each parameter a rank holds where heads, MLP columns and vocabulary rows are
divided (Shoeybi et al., 2019, arXiv 1909.08053, section 3).

What does not divide evenly is divided as evenly as it goes: the first ranks have one more. Where
there are more ranks than KV heads, each KV head is copied to several ranks, which share its
queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twophase.kernels.span import whole
from twophase.models.config import Config
from twophase.models.hugging_face.names import layer_of
from twophase.parallel.weights import Box
from twophase.theory.sizes import LayerWidths


def share(n: int, rank: int, n_ranks: int) -> range:
    """The numbers, of n, that belong to a rank: the first n % n_ranks ranks have one more.
    ValueError for no whole numbers, and for a rank that there is not."""
    whole("what is shared", n, 0)
    if whole("a rank", rank, 0) >= whole("the number of ranks", n_ranks, 1):
        raise ValueError(f"{n_ranks} ranks are counted from 0; there is no rank {rank}.")
    small, more = divmod(n, n_ranks)
    first = rank * small + min(rank, more)
    return range(first, first + small + (rank < more))


def sizes(n: int, n_ranks: int) -> list[int]:
    """How many of n each rank has. ValueError for no whole numbers, or no rank."""
    n_ranks = whole("the number of ranks", n_ranks, 1)
    return [len(share(n, rank, n_ranks)) for rank in range(n_ranks)]


def head_shares(N: int, K: int, rank: int, n_ranks: int) -> tuple[range, range]:
    """The query heads and the KV heads of a rank: every query head beside the KV head that it
    reads. ValueError if some rank would have none, or there is no such rank."""
    if whole("a rank", rank, 0) >= whole("the number of ranks", n_ranks, 1):
        raise ValueError(f"{n_ranks} ranks are counted from 0; there is no rank {rank}.")
    G = N // K
    if n_ranks <= K:
        keys = share(K, rank, n_ranks)
        return range(keys.start * G, keys.stop * G), keys
    head = rank * K // n_ranks
    sharing = [r for r in range(n_ranks) if r * K // n_ranks == head]
    if len(sharing) > G:
        raise ValueError(
            f"{N} query heads in {K} groups cannot be divided over {n_ranks} ranks: some rank would"
            f" have none; take at most {N} ranks."
        )
    own = share(G, sharing.index(rank), len(sharing))
    return range(head * G + own.start, head * G + own.stop), range(head, head + 1)


@dataclass(frozen=True)
class Shares:
    """What rank number `rank` of `n_ranks` holds of a model of this config.

    ValueError, in one sentence, for a model that cannot be divided so: layers of the kind "ssm",
    or more ranks than heads, MLP columns or vocabulary rows.
    """

    config: Config
    rank: int
    n_ranks: int

    def __post_init__(self) -> None:
        if "ssm" in self.config.mixers:
            raise ValueError(
                'layers of the kind "ssm" are not divided here: their state mixes all channels of'
                " a token; take --layout replicas or pipeline."
            )
        for name, n in (("MLP columns", self._narrowest_F()), ("vocabulary rows", self.config.V)):
            if n < self.n_ranks:
                raise ValueError(
                    f"{n} {name} cannot be divided over {self.n_ranks} ranks: take at most {n}."
                )

    def _narrowest_F(self) -> int:
        c = self.config
        dense = [c.at(layer).F for layer in range(c.L) if not c.is_moe(layer)]
        return min([*dense, *([c.moe.F] if c.moe else [])])

    def heads(self, layer: int) -> tuple[range, range]:
        """Its query heads and KV heads in a layer."""
        c = self.config.at(layer)
        if c.mixers[layer] in ("mla", "linear"):  # every head has its own keys
            own, _ = head_shares(c.N, c.N, self.rank, self.n_ranks)
            return own, own
        return head_shares(c.N, c.K, self.rank, self.n_ranks)

    def columns(self, layer: int) -> range:
        """Its columns of a layer's MLP, or of each expert."""
        c = self.config
        wide = c.moe.F if c.moe and c.is_moe(layer) else c.at(layer).F
        return share(wide, self.rank, self.n_ranks)

    @property
    def vocabulary(self) -> range:
        """Its rows of the embedding and of the output matrix."""
        return share(self.config.V, self.rank, self.n_ranks)

    def part(self) -> Config:
        """The config of the rank's layers; V stays, since a rank knows all tokens."""
        c = self.config
        moe = c.moe and replace(c.moe, F=len(share(c.moe.F, self.rank, self.n_ranks)))

        def widths(layer: int) -> LayerWidths:
            queries, keys = self.heads(layer)
            F = c.at(layer).F if c.is_moe(layer) else len(self.columns(layer))
            return LayerWidths(F, len(queries), len(keys))

        if c.widths is not None:
            return replace(c, moe=moe, widths=tuple(widths(layer) for layer in range(c.L)))
        dense = [layer for layer in range(c.L) if not c.is_moe(layer)]
        first = widths(dense[0] if dense else 0)
        return replace(c, moe=moe, F=first.F, N=first.N, K=first.K)

    def box(self, name: str) -> Box | None:
        """What it holds of a parameter: see `weights.Cut`. Biases of what is summed over the ranks
        are on rank 0 only."""
        if name in ("embed_tokens.weight", "lm_head.weight"):
            return [(0, self.vocabulary.start, self.vocabulary.stop)]
        layer = layer_of(name)
        if layer is None:
            return []
        c, parts = self.config.at(layer), name.split(".")
        queries, keys = self.heads(layer)
        module, kind = parts[-2], parts[-1]
        if module in ("o_proj", "down_proj") and kind == "bias":
            return [] if self.rank == 0 else None
        if "self_attn" in parts:
            q_width, k_width, v_width = _head_widths(c, c.mixers[layer])
            cuts = {
                "q_proj": (0, queries, q_width),
                "q_b_proj": (0, queries, q_width),
                "kv_b_proj": (0, queries, k_width),
                "k_proj": (0, keys, k_width),
                "v_proj": (0, keys, v_width),
                "o_proj": (1, queries, v_width),
            }
            return _times(cuts.get(module))
        if module == "experts":
            axis = 2 if kind == "down_proj" else 1
            return _times((axis, self.columns(layer), 1))
        wide = c.moe.n_shared if "shared_experts" in parts and c.moe else 1
        axes = {"gate_proj": 0, "up_proj": 0, "down_proj": 1}
        return _times((axes[module], self.columns(layer), wide)) if module in axes else []


def _head_widths(c: Config, kind: str) -> tuple[int, int, int]:
    """Numbers of a head in queries, in keys (with MLA: keys and values), in values."""
    if kind == "mla" and c.mla is not None:
        m = c.mla
        return m.nope_dim + m.rope_dim, m.nope_dim + m.v_dim, m.v_dim
    if kind == "linear" and c.linear is not None:
        return c.linear.feature_dim, c.linear.feature_dim, c.H
    return c.H, c.H, c.H


def _times(cut: tuple[int, range, int] | None) -> Box:
    """An axis, and the range of its units, each so wide, as a box."""
    if cut is None:
        return []
    axis, units, width = cut
    return [(axis, units.start * width, units.stop * width)]
