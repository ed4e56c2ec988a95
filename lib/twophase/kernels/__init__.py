"""The operations of inference, each a page or less, in torch (Numba where speed is the point).

- `norm`, `mlp`, `rope`: what surrounds attention in a block.
- `attention`: causal attention for any T and S, grouped heads, ragged batches, windows, soft caps;
  fast and naive.
- `attention_training`: the same with a quick backward pass on a CPU.
- `attention_on_cards`: which of torch's kernels it takes on a GPU.
- `online_softmax`: softmax in one pass, partial attention and its merge, FlashAttention in blocks.
- `span`: the new tokens of a pass, where they go and what they see, drafts that branch included.
- `store`: what a layer keeps, of whatever kind. `kv_cache`: every key and value.
  `local_attention`: the ring of a sliding window. `latent_attention`: MLA, expanded and absorbed,
  and its store.
- `state`: what a layer with a recurrence keeps, and how it takes tokens back. `linear_attention`,
  `state_space` (`state_space_compiled` to train with, `state_space_triton` on a GPU, its loops in
  `state_space_triton_loops`): such layers.
- `mixture_of_experts`: routing, and experts that only the tokens sent to them pay for.
  `expert_capacity`: the same in bins of equal size, which may be full. `grouped_experts`: in one
  kernel. `expert_parallel`: dealt out to ranks.
- `collectives`: what ranks say to each other, ring algorithms, and ranks simulated in one process
  (`simulated_ranks`).
- `diffusion`: masking, its loss, and sampling in any order.
- `sharding`: a layer on n ranks, cut in each way, from one rank's side.
- `sampling`: temperature, top-k, top-p, stop conditions.
- `matvec`: matrix times vector in Numba, fp32 and int8.
- `compiled`: the operations of a decode step in Numba, at the speed of memory.

Shapes everywhere: queries [B, T, N, H], keys and values [B, S, K, H], the residual stream [B, T,
D].
"""
