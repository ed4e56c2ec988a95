"""What an engine may use, and how."""

from dataclasses import dataclass

from twophase.kernels.span import whole
from twophase.serving.block_manager import INDEXES

PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True)
class EngineConfig:
    """What an engine may use.

    `n_blocks` blocks of `block_size` tokens; at most `max_seqs` sequences run at once, and a pass
    reads at most `max_batched_tokens` tokens. `chunked_prefill`: prompts may be cut to fit that
    budget; without, a longer one has a pass to itself. `prefix_caching`: blocks are shared by
    prompts that begin alike, `prefix_index` says how: by "hash", full blocks, or in a "radix" tree,
    to the last token. `reserve`: take all blocks that a request may need when it is admitted, as a
    contiguous cache does. `preemption`: "recompute" reads a sequence again that had to give way,
    "swap" keeps its blocks elsewhere. `batch_invariant`: each token in calls of its
    own, so that an answer's bits do not depend on its company. `free_windows`: layers with a window
    have blocks of their own, and give back what lies behind it; no prefix is shared then.
    `watermark`: the share of the pool that stays free when a request joins others, so that these
    can grow (vLLM's option of this name). `pack_weights`: keep matrices a second time, in the order
    in which products of several tokens read them on a CPU (bf16 where the processor has no products
    of it: as they lie): faster passes, other last bits.
    ValueError for what is out of range.
    """

    n_blocks: int = 256
    block_size: int = 16
    max_seqs: int = 16
    max_batched_tokens: int = 256
    chunked_prefill: bool = True
    prefix_caching: bool = False
    prefix_index: str = "hash"
    reserve: bool = False
    preemption: str = "recompute"
    batch_invariant: bool = False
    free_windows: bool = False
    watermark: float = 0.0
    pack_weights: bool = False

    def __post_init__(self) -> None:
        if self.prefix_caching and self.free_windows:
            raise ValueError(
                "a shared prefix needs the blocks that free_windows gives back: take one of the two"
            )
        if self.batch_invariant and self.pack_weights:
            raise ValueError(
                "batch_invariant keeps the bits of a sequence alone, which products of packed"
                " weights do not: take one of the two"
            )
        for name in ("n_blocks", "block_size", "max_seqs", "max_batched_tokens"):
            whole(name, getattr(self, name), 1)
        if self.prefix_index not in INDEXES:
            raise ValueError(
                f"prefix_index is one of {', '.join(INDEXES)}; got {self.prefix_index!r}."
            )
        if self.preemption not in PREEMPTIONS:
            raise ValueError(
                f"preemption is one of {', '.join(PREEMPTIONS)}; got {self.preemption!r}."
            )
        if not isinstance(self.watermark, int | float) or not 0 <= self.watermark < 1:
            raise ValueError(
                f"the watermark is a share of the pool, from 0 to below 1; got {self.watermark!r}."
            )
        if self.max_batched_tokens < self.max_seqs:
            raise ValueError(
                f"a pass must be able to read a token of each of {self.max_seqs} sequences: take"
                f" max_batched_tokens of at least so many; got {self.max_batched_tokens}."
            )
