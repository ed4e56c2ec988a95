"""The operations of inference, each a page or less, in torch (Numba where speed is the point).

- `norm`, `mlp`, `rope`: what surrounds attention in a block.
- `attention`: causal attention for any T and S, grouped heads, ragged batches; fast and naive.
- `online_softmax`: softmax in one pass, partial attention and its merge, FlashAttention in blocks.
- `kv_cache`: `KVCache`, and `RaggedKVCache` whose sequences have their own lengths.
- `sampling`: temperature, top-k, top-p, stop conditions.
- `matvec`: matrix times vector in Numba, fp32 and int8.

Shapes everywhere: queries [B, T, N, H], keys and values [B, S, K, H], the residual stream [B, T, D].
"""
