"""The right manager with one part replaced, for paging-blocks, whose wrong answers some of these
are, and for paging-manager_tests, whose cases must catch them all."""

from __future__ import annotations

from typing import Any

from twophase.checks.answer import LocalAnswer
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import _manager
from twophase.checks.paging._manager import Right
from twophase.protocol import AnswerError

PARTS: dict[str, dict[str, str]] = {
    "frees what others hold": {
        "        if self.count[block] == 0:\n    ": "        if True:\n    ",
    },
    "gives a block back when one reader is left": {"count[block] == 0": "count[block] <= 1"},
    "gives back the last block only": {"in self.tables.pop(seq)": "in self.tables.pop(seq)[-1:]"},
    "gives back all but the last block": {
        "in self.tables.pop(seq)": "in self.tables.pop(seq)[:-1]",
    },
    "never gives a shared block back": {
        "if self.count[block] == 0": "if self.count[block] == 0 and block not in self.ever",
        "self.lengths: dict[str, int] = {}": "self.lengths, self.ever = {}, set()",
        "            self.count[block] += 1": (
            "            self.count[block] += 1\n            self.ever.add(block)"
        ),
    },
    "writes to shared blocks": {"if self.count[last] == 1:": "if self.count[last] >= 1:"},
    "copies for forks, not for the first one": {
        "if self.count[last] == 1:": "if self.count[last] == 1 or seq not in self.forks:",
        "self.lengths: dict[str, int] = {}": "self.lengths, self.forks = {}, set()",
        "        self.lengths[child] =": (
            "        self.forks.add(child)\n        self.lengths[child] ="
        ),
    },
    "copies, and leaves the count as it is": {"        self.release(last)\n": ""},
    "copies, and goes on writing to the shared block": {
        "table[-1] = self.take()": "table[-1], new = last, self.take()",
        "return last, table[-1]": "return last, new",
    },
    "copies the wrong way": {"return last, table[-1]": "return table[-1], last"},
    "copies what was ever forked": {
        "if self.count[last] == 1:": "if self.count[last] == 1 and seq not in self.forks:",
        "self.lengths: dict[str, int] = {}": "self.lengths, self.forks = {}, set()",
        "        self.lengths[child] =": (
            "        self.forks |= {parent, child}\n        self.lengths[child] ="
        ),
    },
    "takes blocks for a fork": {
        "list(self.tables[parent])": "[self.take() for _ in self.tables[parent]]",
        "            self.count[block] += 1": "            pass",
    },
    "gives a fork the parent's own table": {"list(self.tables[parent])": "self.tables[parent]"},
    "counts two readers, however many there are": {
        "self.count[block] += 1": "self.count[block] = 2",
    },
    "counts the full blocks of a fork only": {
        "for block in self.tables[child]:": (
            "for block in self.tables[child][: self.lengths[child] // self.block_size]:"
        ),
    },
    "takes a block more for a multiple of the block": {
        "-(-n_tokens // self.block_size)": "n_tokens // self.block_size + 1",
    },
    "never takes the last free block": {"needed > len(self.unused)": "needed >= len(self.unused)"},
    "takes what there is and then refuses": {
        "            raise ValueError(f": (
            "            self.unused.clear()\n            raise ValueError(f"
        ),
    },
    "refuses every token of a full pool": {
        "if not self.unused and (full or self.count[last] > 1):": "if not self.unused:",
    },
    "does not see that a copy needs a block": {"(full or self.count[last] > 1)": "full"},
    "counts a token that it refuses": {
        "        last, full = table": "        self.lengths[seq] += 1\n        last, full = table",
        "self.lengths[seq] % self.block_size == 0": (
            "self.lengths[seq] % self.block_size == 1 % self.block_size"
        ),
        "        self.lengths[seq] += 1\n        if full:": "        if full:",
    },
}
MANAGERS: dict[str, type] = {name: replaced(Right, parts) for name, parts in PARTS.items()}
EXPECTED = ("free", "copies", "refused")


def found(manager: type, case: dict[str, Any]) -> dict[str, Any]:
    """How many blocks a manager has free after a case's operations, how many it copied and how
    often it refused; and what else is wrong with it, in one word or none."""
    sizes = case["n_blocks"], case["block_size"]
    try:
        handle = LocalAnswer({"BlockManager": manager}).new("BlockManager", *sizes)
        seen = list(_manager.shown(handle, *sizes, case["ops"]).values())
    except AnswerError as e:
        return {"wrong": e.kind}
    if any(step.get("problem") or step.get("lost") for step in seen):
        return {"wrong": "tokens"}
    if any(step.get("refused", True) not in (True, False) for step in seen):
        return {"wrong": "error"}
    return {
        "free": seen[-1].get("free"),
        "copies": sum(step.get("copied", False) for step in seen),
        "refused": sum(step.get("refused", False) for step in seen),
        "wrong": "",
        "left out": any("left out" in step for step in seen),
    }


def caught(manager: type, case: dict[str, Any]) -> bool:
    """Whether a manager shows something else than the case expects."""
    seen = found(manager, case)
    return bool(seen["wrong"]) or any(seen[k] != case[k] for k in EXPECTED)
