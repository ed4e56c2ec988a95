"""The operations of a decode step in Numba: loops that run at the speed of memory.

What each computes is in torch one folder up (`attention`, `rope`, `latent_attention`,
`state_space`, `mixture_of_experts`): that is the text to read, and the oracle of the tests.

- `numbers`: bf16 bits to fp32 and back; exp and tanh that run on vectors.
- `loops`: how a loop is compiled, for one core and for all; what it reads and stores.
- `linear`: products with what stands before and after them: norm, activation, residual; `dot`: a
  row times a vector, and `tokens` times several where the processor has no products of bf16.
  `quantized`: the same of int8 and int4 codes, which `codes` lays out, and `quantized_bytes` where
  processors multiply bytes by fours; `quantized_tokens`: of several tokens, and `bf16_pairs` where
  they multiply bf16 by twos. `lanes`: registers and these instructions, made of `lane_code`.
- `rope`: norms of heads, RoPE, and a new token's place in the cache.
- `latent`, `recurrence`, `experts`: a token through latent attention, through layers with a state,
  and through the experts that it visits.
- `attention`: one query token for each sequence over a contiguous, a ring or a paged cache.
- `layers`: all of these loops for layers of attention, in one call; `state_layers`: for those with
  a state; `step`: these and both ends, from a token to its logits; `addresses`: arrays by where
  they begin.
- `several`: the products of a few tokens of one sequence, in `token_tiles`; `several_attention`:
  what each finds; `several_layers`, `several_state_layers`: whole layers.
- `tables`: where a sequence's tokens lie, and how its blocks are shared out. `parts`: the blocks of
  a task; `merge`: all of them. `block`: scores, softmax and values of one block, in registers that
  `widened` fills, its queries times keys in `block_products`; `block_pairs`: the same by pairs of
  bf16, in `pair_registers`; `block_tiles`: by tiles of them, in `tile_registers`; `block_forms`:
  which of these.
  `prefetch`: asking memory for what comes next.
- `pages`: large pages for weights and caches.
- `threads`: how many, and on what. `compiling`: keeps machine code, and says what takes so
  long.

Numba keeps what it compiled beside the source. It is compiled again when its own file or any file
of this folder changes, and for each setting of its own (`compiling`).
"""
