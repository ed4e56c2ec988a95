"""Heads on the target's own stream draft, and the target's law stays what it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from test_speculative_decoding_loop import PROMPTS, model, spoken

from twophase.checks.law import law
from twophase.models.checkpoints import load
from twophase.models.generate import complete, complete_batch, encode, generate
from twophase.models.recipe import Recipe
from twophase.models.speculative_decoding import (
    FeatureDrafter,
    FeatureHead,
    FeatureReader,
    Law,
    LookupDrafter,
    MedusaDrafter,
    MedusaHeads,
    ModelDrafter,
    speculate,
    speculation_log,
    train_heads,
    trained,
)
from twophase.models.speculative_decoding.features import head_config
from twophase.models.speculative_decoding.trained import NAMES, card, drafter, fits


def heads(target, n=3, widths=None) -> MedusaDrafter:
    torch.manual_seed(21)
    made = MedusaHeads(n, target.config.D, target.config.V)
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return MedusaDrafter(made.eval().requires_grad_(False), widths)


def feature(target, normalized: bool) -> FeatureDrafter:
    torch.manual_seed(22)
    made = FeatureHead(head_config(target.config, 12), normalized)
    for p in made.parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.4)
    return FeatureDrafter(made.eval().requires_grad_(False), target)


MAKERS = {
    "medusa": heads,
    "medusa tree": lambda target: heads(target, 3, (4, 2, 1)),
    "eagle": lambda target: feature(target, False),
    "mtp": lambda target: feature(target, True),
}


@pytest.mark.parametrize("kind", ["gqa", "sliding", "mla", "cross", "ssm"])
@pytest.mark.parametrize("maker", MAKERS)
def test_greedily_heads_say_what_the_target_says_without_them(maker, kind):
    if (maker, kind) == ("medusa tree", "ssm"):
        pytest.skip("a state reads one token after the other: no tree")
    target = model(1, kind)
    wanted = [record.tokens for record in complete_batch(target, PROMPTS, 19)]
    found = spoken(target, MAKERS[maker](target), PROMPTS, 19, gamma=3)
    assert [record.tokens for record in found] == wanted
    assert all(call.drafted for record in found for call in record.calls[:-1])


@pytest.mark.parametrize("maker", MAKERS)
def test_the_law_of_heads_is_the_targets(maker):
    settings = {"temperature": 0.7, "top_k": 3, "top_p": 0.9}
    target = model(3, V=4)

    def plain(choose):
        return tuple(generate(target, [1, 2], 3, choose=choose, **settings))

    def drafted(choose):
        steps = speculate(
            target, MAKERS[maker](target), [1, 2], 3, gamma=2, law=Law(**settings), choose=choose
        )
        return tuple(itertools.chain.from_iterable(steps))

    wanted, found = law(plain), law(drafted)
    apart = sum(abs(wanted.get(k, 0) - found.get(k, 0)) for k in {*wanted, *found}) / 2
    assert apart < 1e-6  # logits of one pass and of several differ in the last digit of fp32


class Oracle(FeatureHead):
    """In place of a trained head: the stream itself, one place on, from a target that it asks."""

    def __init__(self, target, texts):
        super().__init__(head_config(target.config, 12), False)
        self.target, self.texts = target, texts

    def forward(self, embedded, stream, cache=None, n_new=None):
        out = torch.zeros_like(stream)
        starts = cache.lengths
        super().forward(embedded, stream, cache, n_new)
        for b, (start, n) in enumerate(zip(starts, n_new, strict=True)):
            whole = self.target.hidden(torch.tensor([self.texts[b]]))[0]  # [T, D]
            # pair i holds the stream at i: what is read must be it, and token i + 1
            torch.testing.assert_close(stream[b, :n], whole[start : start + n])
            ids = torch.tensor(self.texts[b][start + 1 : start + 1 + n])
            torch.testing.assert_close(embedded[b, :n], self.target.embed_tokens(ids))
            out[b, :n] = whole[start + 1 : start + 1 + n]
        return out


def test_pairs_are_a_token_and_the_stream_before_it():
    # an oracle head that checks each pair it is given; its drafts are therefore always believed
    target = model(4)
    texts = [prompt + complete(target, prompt, 16).tokens for prompt in PROMPTS]
    found = spoken(target, FeatureDrafter(Oracle(target, texts), target), PROMPTS, 16, gamma=4)
    assert [prompt + r.tokens for prompt, r in zip(PROMPTS, found, strict=True)] == texts
    assert [r.acceptance for r in found] == [1, 1, 1]


def test_medusas_heads_stand_at_the_place_before_the_last_token():
    target = model(4)
    drafter, seen = heads(target), []
    own = drafter.propose

    def checked(texts, *args):
        for b, text in enumerate(texts):
            if text is not None:
                stream = target.hidden(torch.tensor([text[:-1]]))[0, -1]  # [D]
                torch.testing.assert_close(drafter.last[b], stream)
                seen.append(b)
        return own(texts, *args)

    drafter.propose = checked
    spoken(target, drafter, PROMPTS, 8, gamma=3)
    assert set(seen) == {0, 1, 2}


def test_training_teaches_each_head_and_a_saved_head_is_the_one_that_was_trained(
    tmp_path, monkeypatch
):
    target = model(7)
    text = np.random.default_rng(1).integers(0, 11, 2000).astype(np.uint8)
    monkeypatch.setattr(train_heads.corpus, "load", lambda split: text)
    monkeypatch.setattr(trained, "HEAD_F", 12)
    recipe = Recipe(n_tokens=4 * 64 * 40, B=4, warmup_steps=5, autocast=False)
    tokens = torch.tensor([text[:65].tolist()])
    stream = target.hidden(tokens)
    torch.manual_seed(recipe.seed)
    before = {name: trained.make(name, target) for name in NAMES}
    for name, head in train_heads.train(target, recipe).items():
        losses = [
            train_heads.loss_of(one, target, tokens, stream).item() for one in (before[name], head)
        ]
        assert losses[1] < 0.95 * losses[0], (name, losses)
        details = {"target": "tiny", "target_sha256": ""}
        trained.save(head, name, details, tmp_path)
        loaded = trained.drafter(name, target, "tiny", tmp_path)
        own = loaded.heads if name == "heads" else loaded.head
        for key, value in head.state_dict().items():  # fp16 has eleven bits
            torch.testing.assert_close(own.state_dict()[key], value, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_trained_heads_are_believed(name):
    # held by a margin: a head that knew nothing of the text is kept less than a twentieth
    target = load("target")
    prompt = encode("def read_lines(path):\n    with open(path) as file:\n        return ")
    plain = complete(target, prompt, 48).tokens
    (record,) = spoken(target, drafter(name, target, "target"), [prompt], 48, gamma=3)
    assert record.tokens == plain
    assert record.acceptance > 0.3
    assert record.tokens_per_call > 1.4


@pytest.mark.parametrize("name", NAMES)
def test_heads_were_trained_on_the_weights_that_are_there(name):
    assert fits(name), f"run {card(name)['command']}: the target has other weights now"


def test_what_a_head_cannot_do_is_said():
    target = model(0)
    with pytest.raises(ValueError, match=r"was trained on target, not on gqa"):
        drafter("eagle", target, "gqa")
    with pytest.raises(ValueError, match="no trained 'hydra'"):
        drafter("hydra", target, "target")
    with pytest.raises(ValueError, match="3 heads draft 1 to 3 levels; got 4"):
        heads(target, 3, (1, 1, 1, 1))
    with pytest.raises(ValueError, match="streams of 16 numbers, the target's have 24"):
        FeatureDrafter(feature(target, False).head, model(0, D=24))
    assert isinstance(heads(target), FeatureReader)
    assert not isinstance(LookupDrafter(), FeatureReader)


def test_a_log_tells_drafts_passes_and_verdicts():
    target, draft = model(1), ModelDrafter(model(2))
    log, records = speculation_log(target, draft, PROMPTS[:2], 9, gamma=2)
    assert [r.tokens for r in records] == [r.tokens for r in complete_batch(target, PROMPTS[:2], 9)]
    for row, record in enumerate(records):
        drafts = [e for e in log.select("draft") if e["row"] == row]
        verdicts = [e for e in log.select("verdict") if e["row"] == row]
        assert [tuple(e["tokens"]) for e in drafts] == [call.drafted for call in record.calls]
        said = [record.tokens[0]]
        for drafted, verdict in zip(drafts, verdicts, strict=True):
            said += [*(drafted["tokens"][i] for i in verdict["kept"]), verdict["token"]]
        assert said == record.tokens
    rounds = len(log.select("call")) - 1  # the prefill
    assert rounds == max(len(record.calls) for record in records)
    assert "propose" not in vars(draft)
