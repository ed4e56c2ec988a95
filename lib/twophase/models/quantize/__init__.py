"""Models with quantized linear layers: how codes are chosen, kept, saved and run.

`quantize(model, method, how, calibration)` returns a copy of a model whose linear layers, embedding
and output matrix apart, are `QuantizedLinear` (integers) or `NamedLinear` (formats with a name);
`save` and `load` keep it in a directory. Every method leaves the shapes and the bytes of round to
nearest, and differs in which codes it takes.

- `linear`: the layers. `calibration`: what its inputs look like. `folding`: scales of inputs, put
  into the layer before. `methods`: round to nearest, GPTQ, AWQ. `activations`: int8 activations,
  LLM.int8() and SmoothQuant. `directory`: on disk.
"""

from twophase.models.quantize.linear import NamedLinear, QuantizedLinear, weight_bytes
from twophase.models.quantize.methods import METHODS, quantize

__all__ = ["METHODS", "NamedLinear", "QuantizedLinear", "quantize", "weight_bytes"]
