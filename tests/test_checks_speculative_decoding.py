"""The exercises of speculative decoding beside the library: references say what the kernels say,
and the printed code is what the check takes it for."""

from __future__ import annotations

import random
import re
from pathlib import Path

import nbformat
import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks.law import law
from twophase.checks.misconceptions import replaced
from twophase.checks.speculative_decoding import (
    _broken_verifiers,
    _printed,
    _rule,
    accept,
    choose,
    lookup,
    snippet,
    tree_mask,
    verify,
)
from twophase.kernels import speculative_decoding as kernel
from twophase.models.speculative_decoding import LookupDrafter

NOTEBOOK = Path(__file__).resolve().parent.parent / "solutions" / "14_speculative_decoding.ipynb"


def task(slug: str) -> str:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (text,) = (c.source for c in cells if c.id == f"speculative_decoding-{slug}-task")
    return str(text)


def tensors(*rows: list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor(r, dtype=torch.float64).reshape(len(r), -1) for r in rows]


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_of_verify_says_what_the_kernel_says(seed: int) -> None:
    for case in verify.cases(random.Random(seed)):
        target, draft, drafted = case.args
        if not drafted:
            continue

        def run(choose, rows=(target, draft), drafted=drafted):  # type: ignore[no-untyped-def]
            found = kernel.verify(*tensors(*rows), drafted, choose)
            return _rule.written([*(drafted[i] for i in found.kept), found.token])

        kernels = {said: p for said, p in law(run).items() if p > _rule.LEAST}
        own = _rule.said_law(verify.reference, target, draft, drafted)
        assert kernels == pytest.approx(own, abs=1e-12), case.name


def test_the_reference_of_accept_is_a_draft_of_one_token() -> None:
    for case in accept.cases(random.Random(1)):
        target, draft, token = case.args
        certain = [1.0] + [0.0] * (len(target) - 1)  # whatever follows a kept token adds no branch
        rows = [target, certain], [draft], [token]

        def run(choose, args=case.args):  # type: ignore[no-untyped-def]
            return accept.reference(*args, choose)[1]

        own = {said: p for said, p in law(run).items() if p > _rule.LEAST}
        first: dict[int, float] = {}
        for said, p in _rule.said_law(verify.reference, *rows).items():
            token_said = int(said.split()[0])
            first[token_said] = first.get(token_said, 0.0) + p
        assert own == pytest.approx(first, abs=1e-12), case.name


def test_the_printed_code_has_the_law_that_the_check_takes_it_to_have() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", task("snippet"), flags=re.S)
    names: dict[str, object] = {}
    exec(code, names)
    rng = random.Random(3)
    for _ in range(20):
        V = rng.randrange(2, 5)
        target, draft = ([_rule.drawn(rng, V) for _ in range(V)] for _ in range(2))
        prompt = [rng.randrange(V) for _ in range(rng.randrange(2, 6))]
        models = [lambda tokens, t=t: [t[x] for x in tokens] for t in (target, draft)]

        def run(choose, models=models, prompt=prompt):  # type: ignore[no-untyped-def]
            return names["speculate_once"](*models, prompt, 1, choose)[0]  # type: ignore[operator]

        given = {"prompt": prompt, "target": target, "draft": draft}
        found = law(run)
        assert [found.get(x, 0.0) for x in range(V)] == pytest.approx(_printed.printed_law(given))


def test_the_repaired_code_leaves_the_targets_law_as_it_is() -> None:
    """What the check compares with follows the target's own law, token by token."""
    rng = random.Random(4)
    for k in (1, 2):
        target, draft = ([_rule.drawn(rng, 3) for _ in range(5)] for _ in range(2))
        models = snippet._model(target, []), snippet._model(draft, [])
        prompt = [1, 0, 2]

        def run(choose, models=models, prompt=prompt, k=k):  # type: ignore[no-untyped-def]
            said = list(snippet.speculate_once(*models, prompt, k, choose))
            while len(said) < k + 1:
                said.append(choose(models[0](prompt + said)[-1]))
            return tuple(said)

        for said, p in law(run).items():
            wanted = 1.0
            for i, token in enumerate(said):
                wanted *= models[0](prompt + list(said[:i]))[-1][token]
            assert p == pytest.approx(wanted, abs=1e-12)


def test_the_task_says_how_many_broken_verifiers_there_are() -> None:
    assert f"each of {len(_broken_verifiers.MUTANTS)} broken ones" in task("verifier_tests")


def test_the_reference_of_lookup_is_the_drafter() -> None:
    for case in lookup.cases(random.Random(2)):
        text, n, longest = case.args
        assert lookup.reference(text, n, longest) == LookupDrafter(longest, 1).after(text, n)


def test_the_reference_of_the_tree_is_the_kernels() -> None:
    for case in tree_mask.cases(random.Random(2)):
        parents, n_cached = case.args
        mask, positions = tree_mask.reference(parents, n_cached)
        assert bool(mask[:, :n_cached].all())
        assert torch.equal(mask[:, n_cached:], kernel.tree_mask(parents)[1:, 1:])
        assert positions == [n_cached + depth - 1 for depth in kernel.depths(parents)]


def test_masks_remembered_by_the_parents_in_any_order_are_refused() -> None:
    kept: dict[tuple[int, ...], tuple[torch.Tensor, list[int]]] = {}

    def remembers(parents: list[int], n_cached: int) -> tuple[torch.Tensor, list[int]]:
        key = n_cached, *sorted(parents)
        if key not in kept:
            kept[key] = tree_mask.reference(parents, n_cached)
        return kept[key]

    refused_by_a_fixed_case("speculative_decoding-tree_mask", {"tree_mask": remembers})


def test_a_draft_without_room_does_not_end_the_search() -> None:
    whole = "        if draft and d.fits(target, machine, draft, B):\n"
    ends = "        if draft and not d.fits(target, machine, draft, B):\n            break\n"
    parts = {whole: f"{ends}        if draft:\n"}
    answer = replaced(choose.reference, parts)
    refused_by_a_fixed_case("speculative_decoding-choose", {"choose": answer})
