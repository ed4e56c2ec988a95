"""The exercises of paging beside the library: references say what the block manager, the kernels
and the theory say, and the printed code is what the check takes it for."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import judge
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import (
    _beams,
    _broken_managers,
    _manager,
    admit,
    attention,
    block_size,
    blocks,
    counts_log,
    evict,
    manager_tests,
    prefix,
    slots,
    snippet,
)
from twophase.kernels.compiled.attention import compiled_paged_attention
from twophase.kernels.paging import FlatSpan
from twophase.protocol import AnswerError
from twophase.serving.block_manager import BlockManager, NoFreeBlocks, check_conserved

NOTEBOOK = Path(__file__).resolve().parent.parent / "solutions" / "16_paging.ipynb"


def task(slug: str) -> str:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (text,) = (c.source for c in cells if c.id == f"paging-{slug}-task")
    return str(text)


class Library:
    """The library's block manager in the words of the exercise."""

    def __init__(self, n_blocks: int, block_size: int) -> None:
        self.manager = BlockManager(n_blocks, block_size)
        self.numbers: dict[str, int] = {}
        self.made = 0
        self.lengths: dict[str, int] = {}

    def do(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self, name)(*args)
        except NoFreeBlocks as e:
            raise ValueError(str(e)) from None
        finally:
            check_conserved(self.manager)

    def allocate(self, seq: str, n_tokens: int) -> None:
        self.manager.allocate(self.made, n_tokens)
        self.numbers[seq], self.lengths[seq] = self.made, n_tokens
        self.made += 1

    def append(self, seq: str) -> tuple[int, int] | None:
        copies = self.manager.append(self.numbers[seq], self.lengths[seq], 1)
        self.lengths[seq] += 1
        return copies[0] if copies else None

    def fork(self, parent: str, child: str) -> None:
        self.manager.fork(self.numbers[parent], self.made)
        self.numbers[child], self.lengths[child] = self.made, self.lengths[parent]
        self.made += 1

    def free(self, seq: str) -> None:
        self.manager.free(self.numbers.pop(seq))

    def table(self, seq: str) -> list[int]:
        return self.manager.tables[self.numbers[seq]]

    def n_free(self) -> int:
        return self.manager.n_free


@pytest.mark.parametrize("seed", range(3))
def test_the_library_shows_on_every_script_what_the_reference_shows(seed: int) -> None:
    for case in blocks.cases(random.Random(seed)):
        n_blocks, size, ops = case.args
        right, own = _manager.Right(n_blocks, size), Library(n_blocks, size)
        for op in ops:
            said = _outcome(getattr(right, op[0]), op[1:]), _outcome(own.do, op)
            assert _kind(said[0]) == _kind(said[1]), (case.name, op)
            assert right.n_free() == own.n_free(), (case.name, op)
            for seq in right.tables:
                assert len(right.table(seq)) == len(own.table(seq))
                mine = [right.count[b] for b in right.table(seq)]
                assert mine == [own.manager.ref_count[b] for b in own.table(seq)]


def _outcome(do: Any, args: Any) -> Any:
    """What an operation returned: a pair of blocks for a copy, None, or a refusal."""
    try:
        return do(*args)
    except ValueError:
        return "refused"


def _kind(said: Any) -> str:
    return "refused" if said == "refused" else "copied" if isinstance(said, tuple) else "done"


@pytest.mark.parametrize("seed", range(3))
def test_scripts_speak_of_sequences_that_are_there(seed: int) -> None:
    for case in blocks.cases(random.Random(seed)):
        sizes = {"n_blocks": case.args[0], "block_size": case.args[1]}
        if case.name.startswith("fresh"):  # what is refused there is left out by the check
            continue
        assert not manager_tests._order_problem({**sizes, "ops": case.args[2]}), case.name


def test_every_broken_manager_is_told_from_the_right_one_by_some_script() -> None:
    cases = blocks.cases(random.Random(5))[: len(blocks.SCRIPTS)]

    def shown(manager: type) -> list[Any]:
        answer = LocalAnswer({"BlockManager": manager})
        return [_seen(answer, case) for case in cases]

    right = shown(_manager.Right)
    assert not any(step.get("problem") for seen in right for step in seen.values())
    for name, manager in _broken_managers.MANAGERS.items():
        assert shown(manager) != right, name


def _seen(answer: LocalAnswer, case: Any) -> Any:
    try:
        return blocks.observe(answer, case)
    except AnswerError as e:
        return {"raised": {e.kind: True}}


class EachTableOnce(_manager.Right):
    """Its tables are right the first time that they are asked for after an operation."""

    asked: frozenset[str] = frozenset()

    def append(self, seq: str) -> tuple[int, int] | None:
        self.asked = frozenset()
        return super().append(seq)

    def allocate(self, seq: str, n_tokens: int) -> None:
        self.asked = frozenset()
        super().allocate(seq, n_tokens)

    def table(self, seq: str) -> list[int]:
        again, self.asked = seq in self.asked, self.asked | {seq}
        return [] if again else super().table(seq)


class StaleCount(_manager.Right):
    """How many blocks are free it knows once it has been asked for a table."""

    known = 0

    def table(self, seq: str) -> list[int]:
        self.known = len(self.unused)
        return super().table(seq)

    def n_free(self) -> int:
        return self.known if self.tables else len(self.unused)


@pytest.mark.parametrize("manager", [EachTableOnce, StaleCount])
def test_a_manager_that_changes_by_being_looked_at_is_wrong(manager: type) -> None:
    assert not judge(registry.load("paging-blocks"), {"BlockManager": manager}).right


def test_the_task_says_how_many_broken_managers_there_are() -> None:
    assert f"each of {len(_broken_managers.MANAGERS)} broken ones" in task("manager_tests")


def test_the_printed_code_is_what_the_check_takes_it_for() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", task("snippet"), flags=re.S)
    names: dict[str, Any] = {}
    exec(code, names)
    rng = random.Random(3)
    for _ in range(30):
        args = _beams.drawn(rng, rng.randrange(1, 5))
        assert names["reorder"](*args) == snippet.printed(*args)


def test_the_repaired_code_keeps_counts_and_unused_blocks_right() -> None:
    rng = random.Random(4)
    for _ in range(30):
        tables, parents, count, unused = _beams.drawn(rng, rng.randrange(1, 5))
        others = [b for b, n in enumerate(count) for _ in range(n - sum(b in t for t in tables))]
        new, after, left = snippet.reorder(tables, parents, count, unused)
        counts, free = _beams.state(new, others, len(count))
        assert (after, sorted(left)) == (counts, sorted(free))


def test_the_reference_of_prefix_finds_what_the_block_manager_finds() -> None:
    rng = random.Random(2)
    for _ in range(20):
        size = rng.randrange(1, 4)
        manager, own = BlockManager(500, size, prefix_caching=True), prefix.Right(size)
        for seq in range(12):
            tokens = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
            found = manager.match(tokens)
            assert own.match(tokens) == found
            table = manager.allocate(seq, len(tokens), found)
            manager.remember(seq, tokens)
            own.insert(tokens, table)


def test_a_block_0_that_is_taken_for_none_is_refused() -> None:
    parts = {
        "            self.found.setdefault(self.key(tokens, i), table[i])": (
            "            key = self.key(tokens, i)\n"
            "            self.found[key] = self.found.get(key) or table[i]"
        )
    }
    refused_by_a_fixed_case("paging-prefix", {"PrefixCache": replaced(prefix.Right, parts)})


@pytest.mark.parametrize("seed", range(3))
def test_no_block_of_a_script_of_prefix_stands_for_two_things(seed: int) -> None:
    for case in prefix.cases(random.Random(seed)):
        for script in case.args[1:]:
            stands: dict[int, list[int]] = {}  # the text up to a block's end
            for what, *args in script:
                for i, block in enumerate(args[1]) if what == "insert" else ():
                    text = args[0][: (i + 1) * case.args[0]]
                    assert stands.setdefault(block, text) == text, case.name


def test_the_reference_of_slots_is_the_slot_mapping() -> None:
    for case in slots.cases(random.Random(1)):
        _, _, start, n_new, size = case.args
        table, found = slots.reference(*case.args)
        if n_new:
            span = FlatSpan((start,), (n_new,), (tuple(table),), (0,), size)
            assert span.slot_mapping.tolist() == found, case.name


def test_the_reference_of_attention_is_the_compiled_kernel() -> None:
    compared = 0
    for case in attention.cases(random.Random(1)):
        q, keys, values, tables, lengths = case.args
        if q.dtype != torch.float32:
            continue
        most = max(map(len, tables))
        padded = torch.tensor([[*table, *[0] * (most - len(table))] for table in tables])
        pools = (pool.nan_to_num(0.0) for pool in (keys, values))
        found = compiled_paged_attention(q[:, None], *pools, padded, torch.tensor(lengths))
        own = attention.reference(*case.args)
        torch.testing.assert_close(found[:, 0], own, rtol=1e-4, atol=1e-5, msg=case.name)
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("seed", range(3))
def test_what_is_evicted_is_a_leaf_without_readers_and_of_these_the_oldest(seed: int) -> None:
    for case in evict.cases(random.Random(seed)):
        given, n = case.args
        gone = evict.reference(given, n)
        left = {b["id"]: b for b in given}
        for block in gone:
            may_go = [
                b
                for b in left.values()
                if not b["readers"] and not any(c["parent"] == b["id"] for c in left.values())
            ]
            assert left[block] in may_go
            assert left[block]["used_s"] == min(b["used_s"] for b in may_go)
            del left[block]


@pytest.mark.parametrize("seed", range(3))
def test_an_admission_leaves_the_watermark_and_everybody_who_was_looked_at_has_a_verdict(
    seed: int,
) -> None:
    for case in admit.cases(random.Random(seed)):
        prompts, n_free, n_blocks, size, percent = case.args
        found = admit.reference(*case.args)
        looked_at = sorted([*found["admitted"], *found["refused"]])
        assert looked_at == list(range(len(looked_at)))
        taken = sum(-(-prompts[i] // size) for i in found["admitted"])
        assert not taken or n_free - taken >= n_blocks * percent // 100


@pytest.mark.parametrize(
    "watermark",
    [
        "int(n_blocks * 0.01 * percent)",
        "int(n_blocks / 100 * percent)",
        "int(n_blocks * (percent / 100))",
        "int(percent / 100 * n_blocks)",
        "int(percent * 0.01 * n_blocks)",
        "n_blocks - math.ceil(n_blocks * (1 - percent / 100))",
        "int(n_blocks / (100 / percent)) if percent else 0",
    ],
)
def test_a_watermark_that_floats_round_down_is_refused(watermark: str) -> None:
    parts = {
        "    watermark = n_blocks * percent // 100": f"    import math\n    watermark = {watermark}"
    }
    refused_by_a_fixed_case("paging-admit", {"admit": replaced(admit.reference, parts)})


@pytest.mark.parametrize("seed", range(3))
def test_in_every_case_of_block_size_somebody_runs_and_not_all_sizes_are_as_good(seed: int) -> None:
    near = []
    for case in block_size.cases(random.Random(seed)):
        lengths, sizes, pool = case.args
        rates = [block_size.p.rate(lengths, size, pool) for size in sizes]
        assert max(rates) > 0, case.name
        near.append(sum(rate >= block_size.NEAR * max(rates) for rate in rates) / len(rates))
    assert sum(share < 1 for share in near) > len(near) / 2


ORDERS: dict[str, Callable[[list[Any]], Iterable[Any]]] = {
    "by number": sorted,
    "by number, downwards": lambda blocks: sorted(blocks, reverse=True),
    "as they appear": lambda blocks: blocks,
    "as they appear, the last first": reversed,
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_log_looked_at_block_by_block_is_refused(order: str) -> None:
    def diagnose(events: counts_log.Log) -> str:
        known = list(dict.fromkeys(e["block"] for e in events))
        own = [[e for e in events if e["block"] == block] for block in ORDERS[order](known)]
        found = [counts_log.reference(history) for history in own]
        faults = [said for said in found if said not in ("leak", "healthy")]
        return faults[0] if faults else "leak" if "leak" in found else "healthy"

    refused_by_a_fixed_case("paging-counts_log", {"diagnose": diagnose})


def test_a_log_of_the_right_manager_is_healthy() -> None:
    """Events as the manager makes them: what takes, shares, copies and releases a block."""
    rng = random.Random(6)
    for _ in range(10):
        manager, log = _manager.Right(60, 2), []
        for name, *args in blocks.drawn(rng, 30):
            log += _events(manager, name, *args)
        for seq in list(manager.tables):
            log += _events(manager, "free", seq)
        assert counts_log.reference(log) == "healthy"
        assert counts_log.reference(log[:-1]) == "leak"


def _events(manager: _manager.Right, name: str, *args: Any) -> list[dict[str, Any]]:
    before = list(manager.tables.get(args[0], []))
    copied = getattr(manager, name)(*args)
    after = manager.tables.get(args[-1] if name == "fork" else args[0], [])
    if name == "fork":
        return [{"event": "share", "block": b} for b in after]
    if name == "free":
        return [{"event": "release", "block": b} for b in before]
    new = [{"event": "take", "block": b} for b in after if b not in before]
    new += [{"event": "release", "block": copied[0]}] if name == "append" and copied else []
    return [*new, {"event": "write", "block": after[-1]}]


class Floats(_manager.Right):
    """Numbers of its blocks are no ints."""

    def table(self, seq: str) -> Any:
        return [float(block) for block in self.tables[seq]]


class Full(_manager.Right):
    """Refuses whatever is asked."""

    def allocate(self, seq: str, n_tokens: int) -> None:
        raise ValueError("no block is free")


@pytest.mark.parametrize(
    ("manager", "said"), [(Floats, "its table is no list"), (Full, "['refused'] is True")]
)
def test_a_report_says_what_a_manager_did_that_it_should_not(manager: type, said: str) -> None:
    assert said in judge(blocks.EXERCISE, {"BlockManager": manager}).message


def test_an_operation_whose_name_is_no_name_is_told_what_an_operation_is() -> None:
    case = {"n_blocks": 1, "block_size": 1, "free": 0, "copies": 0, "refused": 0}
    said = [
        manager_tests.problem([case | {"ops": [[name, "a"]]}]) for name in (["allocate"], {}, 3)
    ]
    assert set(said) == {"an operation is a list that begins with allocate, append, fork or free"}
