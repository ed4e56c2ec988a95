"""Which cells of a submission are run, in which order, and where each exercise is asked.

The rule: whatever is right in a fresh kernel from top to bottom is right. So every code cell runs
where it stands, several of one id all of them, and an exercise is asked where its check stands, in
the middle of a cell, too: what comes below can neither break nor mend it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from twophase.grading.files.cell_names import changes, defined, only_defines, used
from twophase.grading.files.check_calls import catches, checked, parts
from twophase.grading.files.notebook import Cell, Notebook
from twophase.grading.judge.flagged import flagged, is_check
from twophase.grading.release.release import Release
from twophase.grading.results.grade import Flag

# possessive: else a cell of checks and blanks would have as many readings as an attacker likes
NOTHING_ELSE = re.compile(r"(?:\s*+check\([ \t]*+['\"][\w-]++['\"][ \t]*+\)[ \t]*+;?)*+\s*+")
SPEAKS = re.compile(r"\bcheck\b|['\"]\w+-\w")  # of a check, or of an id
SHOWS = "progress()"  # does nothing here: it would be run half a dozen times in a notebook
NOWHERE = "No code cell of the notebook answers it: cells of Markdown or raw text are not run."
UNNAMED = (
    "No cell has its id, and none defines its name: it was asked for by its name all the same."
)
# an assignment to something's attribute (but its own), or a word that is used to change what
# belongs to others
REACHES = re.compile(
    r"^[ \t]*(?!self\.)\w+(?:\.\w+)+[ \t]*=(?!=)"
    r"|\b(?:setattr|builtins|vars|gc|get_ipython)\b|__dict__|__code__",
    re.M,
)
# what changes how everything else computes
SETS = re.compile(
    r"\b(?:set_\w+|set(?:recursionlimit|switchinterval|trace|profile)|seed|manual_seed|seterr"
    r"|use_\w+|filterwarnings|simplefilter|environ|chdir|signal|global|exec|eval|exit|locals"
    r"|globals|patch\w*)\b"
)
# what torch loads a second's worth of modules for, when it is first used
LOADS_MORE = re.compile(
    r"\boptim\b|torch\.(?:compile|func)\b|flop_counter|_dynamo"
    r"|\bimport\s+torch\s+as\b|[\"']meta[\"']"
)
# and what a cell takes from it: to the end of the line, so that no text is read twice
FROM_TORCH = re.compile(r"\bfrom\s+torch\s+import\b([^\n]*+)")


@dataclass(frozen=True)
class Step:
    """A cell to run, or a part of one down to a check: of the release (`setup`; `given` if it could
    have been changed and was not), an answer, or the submission's `own`. `number` tells their
    order, `cell` is the notebook's, counted from 1; `ends`: it is the last part of its cell."""

    number: int
    role: str
    source: str
    exercise_id: str = ""
    cell: int = 0
    ends: bool = True


@dataclass(frozen=True)
class ExecutionPlan:
    """All steps in order, how many of them run before each exercise is asked, the exercises that
    nothing in the notebook answers, the flags, and by their numbers the steps in which each may be
    answered and the last mere check of it."""

    steps: tuple[Step, ...]
    asked: dict[str, int]
    missing: frozenset[str]
    flags: tuple[Flag, ...]
    answered: Mapping[str, Sequence[int]]
    mere: Mapping[str, int]

    def loads_more(self) -> bool:
        """Whether a cell seems to use what torch loads only then."""
        taken = (names for s in self.steps for names in FROM_TORCH.findall(s.source))
        compiles = any("compile" in names for names in taken)
        return compiles or any(LOADS_MORE.search(s.source) for s in self.steps)

    def order(self) -> list[str]:
        """The exercises as they are asked, from top to bottom."""
        return sorted(self.asked, key=self.asked.__getitem__)

    def moved(self, called: Mapping[str, int]) -> dict[str, int]:
        """Where the exercises are to be asked that were asked elsewhere, now that it is known in
        which step the check of each was `called` last, by whatever name."""
        found = {}
        for i in self.asked.keys() & (called.keys() | self.mere.keys()):
            check = max(called.get(i, -1), self.mere.get(i, -1))
            last = _asked_below(self.answered[i], check)
            found[i] = sum(s.number <= last for s in self.steps)
        return {i: n for i, n in found.items() if n != self.asked[i]}

    def speaks_below(self) -> bool:
        """Whether a cell below the last place where an exercise is asked may call a check."""
        asked = (n for i, n in self.asked.items() if i not in self.missing)
        below = self.steps[max(asked, default=0) :]
        return any(SPEAKS.search(s.source) for s in below)

    def above(self, exercise_id: str) -> tuple[Step, ...]:
        """The steps down to where the exercise is asked."""
        return self.steps[: self.asked[exercise_id]]

    def answers(self, exercise_id: str) -> tuple[Step, ...]:
        """The exercise's own steps above its check: one, if no cell was split or copied."""
        return tuple(s for s in self.above(exercise_id) if s.exercise_id == exercise_id)

    def alone(self, exercise_id: str, with_own: bool) -> tuple[Step, ...]:
        """The steps for one exercise by itself, of those above its check: the release's cells, its
        answer, and the submission's own cells if wanted. What is below must not mend it either,
        whosever it is: there it would be one more guess."""
        roles = ("setup", "given", "own") if with_own else ("setup", "given")
        above = self.above(exercise_id)
        return tuple(s for s in above if s.role in roles or s.exercise_id == exercise_id)

    def overwrites(self, exercise_id: str, entries: Sequence[str]) -> tuple[Step, ...]:
        """The cells between its answer and where it is asked that define one of its names again."""
        above = self.above(exercise_id)
        mine = [s.number for s in above if s.exercise_id == exercise_id]
        if not mine:
            return ()
        below = (s for s in above if s.number > max(mine) and s.role != "given")
        return tuple(s for s in below if _defines(s.source, entries))

    def changes(self, exercise_id: str, entries: Sequence[str]) -> int:
        """The cell, counted from 1, that binds one of its names more than once, or deletes it, and
        is asked at its end; 0 if none does."""
        above = [s for s in self.above(exercise_id) if s.role not in ("setup", "given")]
        cell = max((s.cell for s in above if _defines(s.source, entries)), default=0)
        pieces = [s.source for s in above if s.cell == cell]
        return cell if cell and any(changes(pieces, e) for e in entries) else 0

    def changes_after_a_check(self, exercise_id: str, entries: Sequence[str]) -> int:
        """The same, if the cell has a check in it, which may have asked what stood above."""
        cell = self.changes(exercise_id, entries)
        return cell if any("check" in s.source for s in self.steps if s.cell == cell) else 0

    def catches(self, exercise_id: str) -> int:
        """The cell, counted from 1, that may go on where its check has failed; 0 if none does."""
        own = (s for s in self.steps if s.role in ("answer", "own"))
        return next((s.cell for s in own if catches(s.source, exercise_id)), 0)

    def is_stub(self, exercise_id: str) -> bool:
        """Whether the exercise's own cell is a stub still."""
        return any("NotYet" in s.source for s in self.answers(exercise_id))

    def _others(self, exercise_id: str) -> list[Step]:
        """The submission's other steps above where the exercise is asked."""
        theirs = (s for s in self.above(exercise_id) if s.role not in ("setup", "given"))
        return [s for s in theirs if s.exercise_id != exercise_id]

    def reached_into(self, exercise_id: str) -> bool:
        """Whether another cell looks as if it changed something that is not its own, so that this
        answer may suffer."""
        return any(REACHES.search(s.source) for s in self._others(exercise_id))

    def may_suffer(self, exercise_id: str) -> bool:
        """Whether another cell above, or a function of it that was asked before, may have done
        anything to this answer: more than define names that it does not use."""
        others = self._others(exercise_id)
        if any(REACHES.search(s.source) or SETS.search(s.source) for s in others):
            return True
        if not all(only_defines(s.source) for s in others):
            return True
        own = self.answers(exercise_id)
        mine = {name for s in own for name in used(s.source) | defined(s.source)}
        given = {n for s in self.steps if s.role in ("setup", "given") for n in defined(s.source)}
        shared = given - {"np", "numpy", "torch", "math", "NotYet"}
        return any(mine & (defined(s.source) | used(s.source) & shared) for s in others)


def make_plan(notebook: Notebook, release: Release) -> ExecutionPlan:
    """The release's cells first, then the submission's where they stand."""
    code = [(n, cell) for n, cell in enumerate(notebook.cells, 1) if cell.is_code]
    entries = {name for e in release.exercises.values() for name in e.entries}
    cut = [(n, replace(c, source=s)) for n, c in code for s in parts(c.source, entries)]
    cells = {number: cell for number, (_, cell) in enumerate(cut)}
    answered = _answered(cells, release)
    answers = {n: i for i, numbers in answered.items() for n in numbers}
    last_part = {cell: number for number, (cell, _) in enumerate(cut)}
    as_given = {cell for cell, c in code if c.source.strip() in release.given}
    given = {number for number, (cell, _) in enumerate(cut) if cell in as_given}
    steps = [
        replace(s, cell=(c := cut[s.number][0]), ends=last_part[c] == s.number)
        if s.number >= 0
        else s
        for s in _steps(cells, answers, release, given)
    ]
    checks = _checks(cells, release)
    end = max(cells, default=0)
    last = {i: _asked_below(mine, checks.get(i, end)) for i, mine in answered.items()}
    asked = {i: sum(s.number <= n for s in steps) for i, n in last.items()}
    missing, more = _missing(cells, release)
    mere = {i: n for n, c in cells.items() if _is_mere(c.source) for i in checked(c.source)}
    flags = [*dict.fromkeys([*flagged(notebook, release), *more])]
    return ExecutionPlan(tuple(steps), asked, missing, tuple(flags), answered, mere)


def _steps(
    cells: Mapping[int, Cell], answers: Mapping[int, str], release: Release, given: Set[int]
) -> list[Step]:
    """What is run, in order; `given` are the parts of cells that could have been changed and were
    not. A cell of the release that comes first runs in its own place as well, if something above it
    there may have undone it (a `%reset`, say)."""
    others = (
        c for c in cells.values() if c.source.strip() != release.locked.get(c.grade_id, "").strip()
    )
    redefined = {n for c in others for n in defined(c.source)} & {"progress", "check"}
    first = [
        Step(-len(release.first) + n, "setup", release.locked[i])
        for n, i in enumerate(release.first)
    ]
    below: list[Step] = []
    ran = set[str]()
    for n, cell in cells.items():
        locked = cell.grade_id in release.locked and cell.grade_id not in ran
        if locked and (below or cell.grade_id not in release.first):
            below.append(Step(n, "setup", release.locked[cell.grade_id]))
            ran.add(cell.grade_id)
        if n in answers:
            below.append(Step(n, "answer", cell.source, answers[n]))
        elif not _adds_nothing(cell, release, redefined):
            below.append(Step(n, "given" if n in given else "own", cell.source))
    # deleted from the submission: run before the answers
    gone = [i for i in release.locked if i not in ran and i not in release.first]
    return [*first, *(Step(-1, "setup", release.locked[i]) for i in reversed(gone)), *below]


def _answered(cells: Mapping[int, Cell], release: Release) -> dict[str, list[int]]:
    """Where each exercise is answered: in the cells of its id, but for untouched copies of the
    stub, and mere checks, where there is another one; if it has none, in those that define one of
    its names."""
    found = {}
    for exercise_id, exercise in release.exercises.items():
        mine = {n: c.source.strip() for n, c in cells.items() if c.grade_id == exercise_id}
        no_answer = {release.stubs.get(exercise_id), *filter(NOTHING_ELSE.fullmatch, mine.values())}
        written = [n for n, source in mine.items() if not source or source not in no_answer]
        if not mine:
            written = [
                n
                for n, c in cells.items()
                if c.grade_id not in release.exercises and _defines(c.source, exercise.entries)
            ]
        found[exercise_id] = written or [*mine]
    return found


def _defines(source: str, entries: Sequence[str]) -> bool:
    return any(e in source for e in entries) and bool(defined(source) & {*entries})


def _is_mere(source: str) -> bool:
    """Whether a cell asks for checks and does nothing else; an empty one does not even that."""
    return NOTHING_ELSE.fullmatch(source) is not None


def _adds_nothing(cell: Cell, release: Release, redefined: Set[str]) -> bool:
    """Whether a cell that answers nothing need not be run: it is empty, asks for checks or shows
    the progress and does nothing else, unless the notebook has made these itself, is a locked cell
    as it was released, or a copy of a stub."""
    return (
        (_is_mere(cell.source) and ("check" not in redefined or not cell.source.strip()))
        or (cell.source.strip() == SHOWS and "progress" not in redefined)
        or cell.source.strip() == release.locked.get(cell.grade_id, "").strip()
        or cell.grade_id in release.exercises
    )


def _checks(cells: Mapping[int, Cell], release: Release) -> dict[str, int]:
    """Where the last check of each exercise seems to stand: a cell that calls it, else one of its
    id."""
    marked = {
        c.grade_id.removesuffix("-check"): n for n, c in cells.items() if is_check(c, release)
    }
    return marked | {i: n for n, c in cells.items() for i in checked(c.source)}


def _asked_below(mine: Sequence[int], check: int) -> int:
    """The number of the last cell that runs before an exercise is asked: its check's, if that
    stands below the answer."""
    return max(mine) if mine and min(mine) > check else check


def _missing(cells: Mapping[int, Cell], release: Release) -> tuple[frozenset[str], list[Flag]]:
    """The exercises that nothing answers, and a flag for each that no cell's id is of."""
    missing, flags = set(), []
    ids = {c.grade_id for c in cells.values()}
    for exercise_id in sorted(release.exercises.keys() - ids):
        entries = release.exercises[exercise_id].entries
        if any(_defines(c.source, entries) for c in cells.values()):
            says = "No cell has its id. It was asked for by the name that another cell defines."
        else:
            missing.add(exercise_id)
            says = UNNAMED
        flags.append(Flag("missing_cell", exercise_id, says))
    return frozenset(missing), flags
