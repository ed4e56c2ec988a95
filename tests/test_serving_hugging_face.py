"""Hugging Face directories are served: long prompts beside short ones, prefixes that part in one
token, a pool that is too small for all. In the batch-invariant mode each says what it says alone.
"""

from pathlib import Path

import pytest
import torch
from hugging_face_folders import build, byte_level, save

from twophase.models.generate import complete
from twophase.serving import LLM, ContinuousBatching, SamplingParams

FAMILIES = ("mistral", "gemma3_text", "mixtral", "deepseek_v3")
ROOM = {"n_blocks": 9, "block_size": 4, "max_seqs": 4, "max_batched_tokens": 16}
FINDING = {"hash": {"prefix_index": "hash"}, "radix": {"prefix_index": "radix"}}
WAYS: dict = {"swap": {"preemption": "swap"}} | {
    name: {"prefix_caching": True} | how for name, how in FINDING.items()
}


class LastFirst(ContinuousBatching):
    """Who came last comes next, and whoever runs longest gives way."""

    def order(self, waiting):
        return waiting[::-1]

    def victim(self, running):
        return running[0]


def prompts() -> list[list[int]]:
    """A text, the same with one token changed in each block, and what is long or short."""
    drawn = torch.Generator().manual_seed(5)
    text = torch.randint(2, 300, (12,), generator=drawn).tolist()
    changed = [[token + (i == at) for i, token in enumerate(text)] for at in (0, 5, 11)]
    return [text, *changed, text[:4], text[:5], (text * 2)[:20], [7]]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_is_served_as_each_prompt_would_be_alone(family: str, tmp_path: Path) -> None:
    save(build(family), tmp_path, byte_level())
    preempted = shared = 0
    for way, options in WAYS.items():
        llm = LLM(tmp_path, dtype=torch.float64, batch_invariant=True, **ROOM, **options)
        answers = llm.generate(prompts(), SamplingParams(max_tokens=9), policy=LastFirst())
        for answer, prompt in zip(answers, prompts(), strict=True):
            stop = answer.request.params.stop
            alone = complete(llm.model, prompt, 9, stop=stop).tokens
            assert answer.request.tokens == alone, way
            preempted += answer.request.preemptions
            shared += answer.request.n_shared
    assert preempted > 5
    assert shared > 10
