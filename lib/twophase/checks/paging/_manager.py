"""A block manager as the exercises of this topic ask for it, and what a script of operations shows
of one: a memory beside it, in which every token is another number, says what each sequence reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twophase.checks.answer import Handle, each, outcome
from twophase.checks.compare import plain
from twophase.protocol import AnswerError

Op = Sequence[Any]  # ("allocate", seq, n_tokens), ("append", seq), ("fork", parent, child), ...
# What an operation shows: always all of it, so that a report says which is not as it should be.
FINE = {"problem": "", "refused": False, "copied": False, "free": 0, "lost": []}
N_FREE = ("n_free",)
METHODS = {"allocate": (str, int), "append": (str,), "fork": (str, str), "free": (str,)}


class Right:
    """Reference counts and copy-on-write (Kwon et al., 2023, section 4.3)."""

    def __init__(self, n_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.unused = list(range(n_blocks))
        self.count = [0] * n_blocks
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}

    def allocate(self, seq: str, n_tokens: int) -> None:
        needed = -(-n_tokens // self.block_size)
        if needed > len(self.unused):
            raise ValueError(f"{needed} blocks are needed, {len(self.unused)} are free")
        self.tables[seq] = [self.take() for _ in range(needed)]
        self.lengths[seq] = n_tokens

    def append(self, seq: str) -> tuple[int, int] | None:
        table = self.tables[seq]
        last, full = table[-1], self.lengths[seq] % self.block_size == 0
        if not self.unused and (full or self.count[last] > 1):
            raise ValueError("no block is free")
        self.lengths[seq] += 1
        if full:
            table.append(self.take())
            return None
        if self.count[last] == 1:
            return None
        self.release(last)
        table[-1] = self.take()
        return last, table[-1]

    def fork(self, parent: str, child: str) -> None:
        self.tables[child] = list(self.tables[parent])
        self.lengths[child] = self.lengths[parent]
        for block in self.tables[child]:
            self.count[block] += 1

    def free(self, seq: str) -> None:
        del self.lengths[seq]
        for block in self.tables.pop(seq):
            self.release(block)

    def table(self, seq: str) -> list[int]:
        return list(self.tables[seq])

    def n_free(self) -> int:
        return len(self.unused)

    def take(self) -> int:
        block = self.unused.pop(0)
        self.count[block] = 1
        return block

    def release(self, block: int) -> None:
        self.count[block] -= 1
        if self.count[block] == 0:
            self.unused.append(block)


class Memory:
    """What lies in the blocks of a manager, and what should: each token is a number of its own."""

    def __init__(self, manager: Handle, n_blocks: int, block_size: int) -> None:
        self.manager, self.n_blocks, self.block_size = manager, n_blocks, block_size
        self.places: dict[tuple[int, int], int] = {}
        self.texts: dict[str, list[int]] = {}
        self.written = 0
        self.look()

    def look(self) -> None:
        """Ask how many blocks are free, before and after the tables of all sequences, and these
        twice: nothing changes by being looked at."""
        tables, n = [("table", seq) for seq in self.texts], len(self.texts)
        free, *found, again = map(plain, each(self.manager, N_FREE, *tables, *tables, N_FREE))
        self.tables = dict(zip(self.texts, found[:n], strict=True))
        self.tables_again = dict(zip(self.texts, found[n:], strict=True))
        self.free = free if again == free else [free, again]

    def apply(self, op: Op) -> dict[str, Any]:
        """Do one operation; what it shows. One that speaks of a sequence that is not there (the
        operation that made it was refused) is left out."""
        name, seq, *more = op
        if name != "allocate" and seq not in self.texts:
            return {"left out": True}
        found = outcome(lambda: self._done(op))
        raised = found.get("raised") if isinstance(found, dict) else None
        if raised is not None:
            self.look()
            return {**FINE, "refused": "ValueError" in raised or raised, **self.state()}
        copied = plain(found) if name == "append" else None
        if name in ("allocate", "append"):
            said = self._write(seq, more[0] if name == "allocate" else 1, copied)
            if said:
                return {**FINE, "problem": said}
        else:
            self._rename(op)
            self.look()
        return {**FINE, "copied": copied is not None, **self.state()}

    def _rename(self, op: Op) -> None:
        """A fork has the same text; what is freed has none."""
        name, seq, *more = op
        if name == "fork":
            self.texts[more[0]] = list(self.texts[seq])
        else:
            del self.texts[seq]

    def _done(self, op: Op) -> Any:
        """What append returned; of the others nothing is wanted back, so they may return anything,
        themselves included."""
        try:
            found = self.manager.call(*op)
        except AnswerError as e:
            if op[0] == "append" or e.kind != "not_plain":
                raise
            return None
        return found if op[0] == "append" else None

    def _write(self, seq: str, n_tokens: int, copied: Any) -> str:
        """Copy a block if wanted, and write the tokens behind the end; says what prevents it."""
        if copied is not None:
            if not isinstance(copied, list | tuple) or len(copied) != 2:
                return "append must return None or a pair (from, to)"
            if not all(self._is_block(block) for block in copied):
                return f"append returned the pair {tuple(copied)}, which are no two blocks"
            source, target = copied
            for i in range(self.block_size):
                self.places[target, i] = self.places.get((source, i), -1)
        text = self.texts.setdefault(seq, [])
        start = len(text)
        text += range(self.written, self.written + n_tokens)
        self.written += n_tokens
        self.look()
        table = self.tables[seq]
        if said := self.problem(table, len(text)):
            return f"after {len(text)} tokens of {seq!r} its table {said}"
        for p in range(start, len(text)):
            self.places[table[p // self.block_size], p % self.block_size] = text[p]
        return ""

    def _is_block(self, block: Any) -> bool:
        return type(block) is int and 0 <= block < self.n_blocks

    def problem(self, table: Any, n_tokens: int) -> str:
        """What makes a table none for so many tokens; empty if nothing does."""
        if not isinstance(table, list | tuple) or not all(map(self._is_block, table)):
            return "is no list of block numbers"
        if len(table) != -(-n_tokens // self.block_size):
            return f"has {len(table)} blocks of {self.block_size}"
        return "" if len(set(table)) == len(table) else "names a block twice"

    def state(self) -> dict[str, Any]:
        """How many blocks are free (or what was said first and then, where these differ), and which
        sequences do not read what they have written."""
        lost = [seq for seq, text in self.texts.items() if self.read(seq, len(text)) != text]
        return {"free": self.free, "lost": sorted(lost)}

    def read(self, seq: str, n_tokens: int) -> list[int]:
        table = self.tables_again[seq]
        if self.problem(table, n_tokens):
            return [-2]
        size = self.block_size
        return [self.places.get((table[p // size], p % size), -1) for p in range(n_tokens)]


def shown(manager: Handle, n_blocks: int, block_size: int, ops: Sequence[Op]) -> dict[str, Any]:
    """What a new manager shows after each operation; those behind a table that cannot be used are
    left out."""
    memory, seen, usable = Memory(manager, n_blocks, block_size), {}, True
    seen["at the start"] = memory.state()
    for i, op in enumerate(ops):
        found = memory.apply(op) if usable else {"left out": True}
        usable = usable and not found.get("problem")
        seen[f"{i + 1}: {op[0]} {', '.join(map(str, op[1:]))}"] = found
    return seen


def script(text: str) -> list[Op]:
    """The operations of a short text: "a5" allocates, "+a" appends, "a>b" forks, "-a" frees."""
    ops: list[Op] = []
    for word in text.split():
        if ">" in word:
            ops.append(("fork", *word.split(">")))
        elif word[0] in "+-":
            ops.append(("append" if word[0] == "+" else "free", word[1:]))
        else:
            ops.append(("allocate", word[0], int(word[1:])))
    return ops
