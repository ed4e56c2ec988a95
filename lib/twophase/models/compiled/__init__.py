"""The decode step in compiled loops: the same model, weights and cache, without a thousand small
operators between the bytes.

At batch 1 a step reads every weight once, so memory sets its pace, if nothing else takes time. Five
calls make a layer, and read like the algorithm (`halves`):

    norm and q, k, v · RoPE, cache and attention · output and residual
    norm, gate, up and activation · down and residual

Neighbors of one kind are one call together (`run`): the same loops, and no Python between them.
Where that is all of a model, so are embedding and head (`whole`). A few tokens of one sequence, as
a verification of drafted ones, go through the same five calls with a row for each (`several`).

`CompiledTransformer(model)` is called as the model is. What has no loops runs in plain torch
(`plain`), half a layer at a time, and is named in `CompiledTransformer.plain`. The plain model
stays the text to read, and the oracle of the tests.
"""

from twophase.models.compiled.transformer import CompiledTransformer

__all__ = ["CompiledTransformer"]
