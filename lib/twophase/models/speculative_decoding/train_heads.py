"""Trains the heads that draft for a model of the course: all three in one run, since the target's
own pass over the text serves them all.

`python -m twophase.models.speculative_decoding.train_heads` writes `heads/`, some minutes of
one core. The target stands still. All learn its law after each place, not the text's next byte: of
a short training that leaves more. EAGLE learns its stream as well (smooth L1, the law at a tenth,
noise on what it reads; Li et al. 2024), Medusa's guesses count less the further they
reach (0.8 a place; Cai et al. 2024).
"""

import argparse
import time
from dataclasses import asdict, replace

import torch
from torch.nn import functional

from twophase.models import checkpoints, corpus
from twophase.models.bf16_products import products_in_fp32
from twophase.models.optimizer import MuonAdamW
from twophase.models.recipe import Recipe, batch
from twophase.models.speculative_decoding.medusa import MedusaHeads
from twophase.models.speculative_decoding.trained import FOLDER, NAMES, Head, make, save
from twophase.models.train import device_name
from twophase.models.transformer import Transformer

TARGET = "target"
RECIPE = Recipe(n_tokens=800_000, lr_matrices=4e-3, lr_others=2e-3, warmup_steps=20)
NOISE = 0.1  # largest, uniform, on the stream that EAGLE reads


def loss_of(
    head: Head, target: Transformer, tokens: torch.Tensor, stream: torch.Tensor
) -> torch.Tensor:
    """What a head has to learn from tokens, int64 [B, T], and the target's stream, [B, T, D]."""
    laws = target.logits(stream).float().log_softmax(-1)  # [B, T, V]
    if isinstance(head, MedusaHeads):
        guesses = head(stream)  # [B, T, n, V]
        T = stream.shape[1]
        # head i stands at place t and guesses what the target says at t + i + 1
        parts = [
            0.8**i * _apart(guesses[:, : T - i - 1, i], laws[:, i + 1 :]) for i in range(head.n)
        ]
        return torch.stack(parts).sum()
    read = stream[:, :-1]  # [B, T - 1, D]
    if not head.normalized:
        read = read + (torch.rand_like(read) * 2 - 1) * NOISE
    expected = head(target.embed_tokens(tokens[:, 1:]), read)  # [B, T - 1, D]
    apart = _apart(target.logits(expected), laws[:, 1:])
    if head.normalized:
        return apart
    return functional.smooth_l1_loss(expected.float(), stream[:, 1:].float()) + 0.1 * apart


def _apart(logits: torch.Tensor, laws: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of a guess, logits [..., V], with the target's law, logarithms [..., V]."""
    return -(laws.exp() * logits.float().log_softmax(-1)).sum(-1).mean()


@products_in_fp32()
def train(target: Transformer, recipe: Recipe = RECIPE) -> dict[str, Head]:
    """All heads, trained on the training text; a line every 50 steps."""
    torch.manual_seed(recipe.seed)
    data, T = corpus.load("train"), target.config.context
    made = {name: make(name, target).train() for name in NAMES}
    optimizers = {
        name: MuonAdamW(head, recipe.lr_matrices, recipe.lr_others, 0.0)
        for name, head in made.items()
    }
    for step in range(recipe.steps(T)):
        tokens = batch(data, step, recipe.B, T, recipe.seed)  # [B, T + 1]
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.autocast):
            with torch.no_grad():
                stream = target.hidden(tokens)  # [B, T + 1, D]
            losses = {name: loss_of(head, target, tokens, stream) for name, head in made.items()}
        for name, head in made.items():
            optimizers[name].zero_grad(head)
            losses[name].backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(head.parameters(), recipe.clip)
            optimizers[name].step(recipe.lr_share(step, T))
        if step % 50 == 0:
            print(
                step,
                {name: round(float(loss.detach()), 3) for name, loss in losses.items()},
                flush=True,
            )
    return {name: head.eval() for name, head in made.items()}


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description="Train the heads that draft for the target.")
    parser.add_argument("--tokens", type=int, default=RECIPE.n_tokens, help="the budget")
    recipe = replace(RECIPE, n_tokens=parser.parse_args().tokens)
    torch.set_num_threads(1)
    target, started = checkpoints.load(TARGET), time.process_time()
    details = {
        "target": TARGET,
        "target_sha256": checkpoints.card(TARGET)["weights_sha256"],
        "command": "python -m twophase.models.speculative_decoding.train_heads",
        "recipe": asdict(recipe),
        "device": device_name("cpu"),
        "torch": torch.__version__,
        "corpus_sha256": corpus.digest(),
    }
    made = train(target, recipe)
    details["processor_s_of_all"] = round(time.process_time() - started)
    for name, head in made.items():
        size = sum(p.numel() for p in head.parameters())
        print(save(head, name, {**details, "n_params": size}), size)
    print(f"{FOLDER}: {details['processor_s_of_all']} s of one core")


if __name__ == "__main__":
    main()
