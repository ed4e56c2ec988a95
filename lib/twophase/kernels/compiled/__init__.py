"""The operations of a decode step in Numba: loops that run at the speed of memory.

What each computes is in the module of the same name one folder up, in torch: that is the text to
read, and the oracle of the tests.

- `numbers`: bf16 bits to fp32 and back, and an exponential that runs on vectors.
- `loops`: how a loop is compiled, for one core and for all; what it reads and stores.
- `linear`: products with what stands before and after them: norm, activation, residual.
- `rope`: norms of heads, RoPE, and a new token's place in the cache.
"""
