"""The operations of a decode step in Numba: loops that run at the speed of memory.

What each computes is in the module of the same name one folder up, in torch: that is the text to
read, and the oracle of the tests.

- `numbers`: bf16 bits to fp32 and back, and an exponential that runs on vectors.
"""
