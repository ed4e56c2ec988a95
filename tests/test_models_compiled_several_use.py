"""Passes of a few tokens as people use them: with somebody who listens, tokens that cannot be, a
pass that is broken off, a model that was changed. Right, or refused in one sentence."""

from dataclasses import replace

import pytest
import torch
from test_models_compiled import ODD, TOLERANCE, random_model, tokens
from test_models_compiled_several import PASSES, disagreement, made_of
from test_models_compiled_use import LATENT

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models.checkpoints import load
from twophase.models.compiled import CompiledTransformer, several_halves
from twophase.models.compiled.several_halves import SeveralRun
from twophase.models.quantize import quantize


def test_a_block_that_somebody_listens_to_runs_in_torch_and_the_others_in_loops():
    model = random_model(replace(ODD, L=4))
    heard: list[int] = []
    model.layers[1].register_forward_hook(lambda *_: heard.append(1))
    compiled = CompiledTransformer(model)
    assert disagreement(model, compiled, PASSES, prompt=3) < TOLERANCE
    assert len(heard) == 2 * len(PASSES) + 2  # and both prompts


def test_whoever_listens_hears_every_pass_of_a_quantized_model():
    """What runs in torch there is another model, of other linear layers."""

    class Listener:
        heard = 0

        def hear(self, *_: object) -> None:
            self.heard += 1

    listener, model = Listener(), quantize(load("gqa"), "nearest", IntegerFormat(8, 32))
    handle = model.layers[0].register_forward_hook(listener.hear)
    compiled = CompiledTransformer(model)
    for shape in ((1, 4), (1, 1), (2, 1)):
        compiled(torch.ones(shape, dtype=torch.int64), compiled.new_cache(shape[0], 4))
    assert listener.heard == 3
    handle.remove()
    compiled(torch.ones(1, 4, dtype=torch.int64), compiled.new_cache(1, 4))
    assert listener.heard == 3


@pytest.mark.parametrize("at", [4, -5, torch.tensor(4), torch.tensor([-5])])
def test_a_token_that_did_not_come_is_refused_and_nothing_is_left_to_commit(at):
    compiled = CompiledTransformer(random_model(ODD))
    cache = compiled.new_cache(1, 9)
    with pytest.raises(ValueError, match="-4 to 3"):
        compiled(torch.tensor([[1, 2, 3, 4]]), cache, at=at)
    with pytest.raises(ValueError, match="nothing to commit"):
        cache.commit()


@pytest.mark.parametrize(("ids", "more", "said"), [
    ([1, ODD.V], {}, "outside the vocabulary: 0 to 30"),
    ([-1, 1], {}, "outside the vocabulary: 0 to 30"),
    ([1] * 9, {}, "room for 8 tokens"),
    ([1] * 5, {"learned_positions": 4}, "learned 4 positions"),
])  # fmt: skip
def test_tokens_that_cannot_be_are_refused_as_in_the_plain_model(ids, more, said):
    model = random_model(replace(ODD, **more))
    for run in (model, CompiledTransformer(model)):
        cache = model.new_cache(1, 8)
        with pytest.raises(ValueError, match=said):
            run(torch.tensor([ids]), cache)
        assert cache.length == 0


def test_a_pass_that_is_broken_off_leaves_the_cache_as_it_was(monkeypatch):
    model = random_model(replace(ODD, attention=("gqa", "sliding", "gqa"), window=4))
    compiled, ids = CompiledTransformer(model), tokens(model, 12)
    cache = model.new_cache(1, 12)
    with torch.inference_mode():
        compiled(ids[:, :6], cache)

        def broken(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(several_halves.SeveralMLP, "__call__", broken)
            patch.setattr(several_halves.SeveralRun, "__call__", broken)
            with pytest.raises(KeyboardInterrupt):
                compiled(ids[:, 6:9].flip(1), cache)
        with pytest.raises(ValueError, match="nothing to commit"):
            cache.commit()
        ours, plain = compiled(ids[:, 6:], cache), model(ids)[:, 6:]
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def test_changed_weights_are_noticed():
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    compiled(torch.tensor([[1, 2]]), compiled.new_cache(1, 2))
    with torch.no_grad():
        model.norm.weight.mul_(2)
    with pytest.raises(ValueError, match="the model was changed"):
        compiled(torch.tensor([[1, 2]]), compiled.new_cache(1, 2))


def test_a_pass_that_was_refused_leaves_nothing_behind_for_the_next():
    """The first of several tokens comes while the model is another: a layer has a hook."""
    model = random_model(LATENT)
    compiled, ids = CompiledTransformer(model), tokens(model, 4)
    handle = model.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="got a hook"):
        compiled(ids, compiled.new_cache(1, 4))
    handle.remove()
    with torch.inference_mode():
        torch.testing.assert_close(
            compiled(ids, compiled.new_cache(1, 4)), model(ids), rtol=1e-4, atol=1e-4
        )


def test_a_small_model_has_no_second_copy_of_its_matrices_for_them():
    compiled = CompiledTransformer(load("gqa"))
    assert set(made_of(compiled)) == {SeveralRun}
    assert compiled._batched is None


@pytest.mark.parametrize("T", [1, 3])
def test_what_the_plain_model_refuses_is_refused_in_its_words(T):
    compiled = CompiledTransformer(random_model(ODD))
    ids = torch.ones(1, T, dtype=torch.int64)
    with pytest.raises(ValueError, match="tokens on meta for a model on cpu"):
        compiled(ids.to("meta"), compiled.new_cache(1, 4))
    with pytest.raises(ValueError, match="a cache comes from `new_cache`"):
        compiled(ids, object())
