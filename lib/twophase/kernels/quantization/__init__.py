"""Number formats for weights and caches, bit by bit: how numbers are encoded, packed and decoded.

Each module holds one family. What is encoded knows its bytes (`nbytes`), and these are what
`theory.quantization` says.

- `floats`: sign, exponent, mantissa: fp32, fp16, bf16, fp8 (e4m3, e5m2), fp4 (e2m1).
- `packing`: codes of 1 to 8 bits side by side in bytes.
- `integers`: absmax and affine grids; a scale for a tensor, a channel, or a group of inputs.
- `microscaling`: MX, blocks of 32 small floats that share a power of two. `nvfp4`: blocks of 16
  that share an e4m3.
- `normal_float`: NF4, whose levels are quantiles of the normal distribution; double quantization.
- `gguf`: the blocks of llama.cpp's files: q8_0, q5_0, q4_0; `q4_k`, `q6_k`: super-blocks of 256,
  whose scales are quantized too (`k_search` looks for them).
- `named`: a matrix in any format that has a name and no options, as the tensors that a file holds.
- `published`: the words of GPTQ's and AWQ's checkpoints.

And what chooses codes or scales by calibration inputs, or rounds what is computed:

- `gptq`: column by column, errors made up for. `scaling`: AWQ's and SmoothQuant's input scales.
- `int8_products`: activations in int8, outliers apart (LLM.int8()). `cached`: keys and values.
"""
