"""Layers with a state in compiled loops: the state after a token is written elsewhere, and taken
over without a copy when the pass is committed."""

import pytest
import torch
from test_models_compiled import TOLERANCE, random_model, tokens
from test_models_compiled_use import LINEAR, STATE_SPACE

from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.models.compiled import CompiledTransformer

STATES = pytest.mark.parametrize("config", [LINEAR, STATE_SPACE], ids=["linear", "ssm"])


def states_of(cache) -> list[torch.Tensor]:
    return [held for store in cache.stores.values() for held in store.held]


@STATES
def test_a_committed_state_is_taken_over_without_a_copy_and_the_old_one_is_the_next_room(config):
    model = random_model(config)
    compiled, cache, plain = CompiledTransformer(model), *(model.new_cache(1, 9) for _ in "ab")
    places = []
    with torch.inference_mode():
        for token in tokens(model, 6).split(1, dim=1):
            found, wanted = compiled(token, cache), model(token, plain)
            assert (found - wanted).abs().max() < TOLERANCE * wanted.std()
            places.append([held.data_ptr() for held in states_of(cache)])
    assert places[0] == places[2] == places[4]
    assert places[1] == places[3] == places[5]
    assert not set(places[0]) & set(places[1])
    # what was made in inference mode may be changed by a pass that is not in it
    found, wanted = (model(torch.tensor([[3]]), c) for c in (cache, plain))
    assert (found - wanted).abs().max() < TOLERANCE * wanted.std()


@STATES
def test_a_pass_that_is_not_committed_changes_no_number_of_a_state(config):
    model = random_model(config)
    compiled, cache = CompiledTransformer(model), model.new_cache(1, 9)
    for token in tokens(model, 3).split(1, dim=1):
        compiled(token, cache)
    before = [held.clone() for held in states_of(cache)]
    for wrong in (5, 6):
        compiled(torch.tensor([[wrong]]), cache, commit=False)
    assert all(map(torch.equal, before, states_of(cache)))


@STATES
def test_a_commit_that_breaks_off_between_two_layers_says_so_and_the_cache_can_begin_anew(
    config, monkeypatch
):
    model = random_model(config)
    compiled, cache = CompiledTransformer(model), model.new_cache(1, 9)
    for token in tokens(model, 3).split(1, dim=1):
        compiled(token, cache)

    def broken_off(*_):
        raise KeyboardInterrupt

    compiled(torch.tensor([[5]]), cache, commit=False)
    with monkeypatch.context() as patch:
        patch.setattr(cache.stores[1], "commit", broken_off)
        with pytest.raises(KeyboardInterrupt):
            cache.commit()
    with pytest.raises(ValueError, match="a change was broken off"):
        compiled(torch.tensor([[5]]), cache)
    cache.truncate(0)
    plain = model.new_cache(1, 9)
    for token in tokens(model, 4).split(1, dim=1):
        found, wanted = compiled(token, cache), model(token, plain)
        assert (found - wanted).abs().max() < TOLERANCE * wanted.std()


def test_a_state_and_its_room_are_never_the_same_tensors_wherever_a_commit_breaks_off(monkeypatch):
    """Or the next pass would write over the state that it reads."""
    state = State(1, [(2, 3)])
    span = Span.of(1, 1)
    for setting in ("held", "_sides"):  # broken off before each of these is set
        state.step(span).room[0].fill_(7)

        def setattr_(self, name, value, setting=setting):
            if name == setting and value is not None:
                raise KeyboardInterrupt
            object.__setattr__(self, name, value)

        with monkeypatch.context() as patch:
            patch.setattr(State, "__setattr__", setattr_)
            with pytest.raises(KeyboardInterrupt):
                state.commit(span, [1])
        side = state.step(span)
        assert side.held[0] is state.held[0]
        assert side.now[0].data_ptr() == state.now[0].data_ptr() != side.room[0].data_ptr()
