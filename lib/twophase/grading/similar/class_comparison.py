"""Which answers of a class are near-identical, as evidence for a person: reads notebooks, runs
nothing, gives no score."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twophase.grading.course.roster_file import Student
from twophase.grading.course.scheme import Scheme
from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.cell_names import defined
from twophase.grading.files.notebook import Cell, Notebook, isolated
from twophase.grading.intake.submissions import Submission
from twophase.grading.release.release import Source
from twophase.grading.scores.student_matching import Roster, students_of
from twophase.grading.similar import fragments
from twophase.grading.similar import known as similar_known
from twophase.grading.similar.groups import SimilarGroup, groups_of
from twophase.grading.similar.known import Published
from twophase.grading.similar.pairs import Answer, Compared, Students, compare
from twophase.grading.similar.traces import FileTraces, Mark, named, traces_of, words

COURSE = Source()
LEAST = 0.8
OWN = "own cells"
Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much


@dataclass(frozen=True)
class StudentNotebook:
    """One notebook, read. `party`: whom it counts for; two with one in common do not compare."""

    file: str
    party: Students
    topic: str
    digest: str
    answers: Mapping[str, str]
    traces: FileTraces
    untouched: bool


@dataclass(frozen=True)
class Report:
    """A class compared. `unreadable`: files and why. `groups_left_out`: how many are not listed."""

    least: float
    notebooks: tuple[StudentNotebook, ...]
    unreadable: tuple[tuple[str, str], ...]
    exercises: tuple[Compared, ...]
    groups: tuple[SimilarGroup, ...]
    known: Mapping[str, Published]
    groups_left_out: int


def party_of(submission: Submission, topic: str, scheme: Scheme | None, roster: Roster) -> Students:
    """The students that a submission counts for, as in a gradebook: of its layout, else by the
    course's rule, else by its folder's or file's name; all of a group."""
    parts = submission.name.split("/")
    by_name = parts[0] if len(parts) > 1 else parts[0].removesuffix(".ipynb")
    said, file = submission.student, submission.name
    who = students_of(said, file, topic, roster, scheme) or [said or by_name]
    return tuple(sorted({m for w in who for m in (scheme.members(w, topic) if scheme else (w,))}))


def read_notebooks(
    submissions: Sequence[Submission],
    scheme: Scheme | None,
    source: Source,
    handed_out: Path | None,
    told: Progress,
    students: Sequence[Student] = (),
) -> tuple[list[StudentNotebook], list[tuple[str, str]]]:
    """All notebooks, and the files that cannot be read with the reason. Raises ValueError if
    `handed_out` is no release."""
    roster = Roster(students)
    notebooks: list[StudentNotebook] = []
    unreadable: list[tuple[str, str]] = []
    for n, submission in enumerate(submissions, 1):
        try:
            data = submission.read()
            book = notebook.parse(data)
            topic = source.topic_of(book, submission.name.rpartition("/")[2])
            known = similar_known.load_published(topic, source.catalog().stem(topic), handed_out)
            party = party_of(submission, topic, scheme, roster)
            with isolated():
                notebooks.append(_student_notebook(submission.name, party, book, data, known))
        except Unreadable as e:
            unreadable.append((submission.name, str(e)))
        told("reading", n, len(submissions))
    return notebooks, unreadable


def _student_notebook(
    file: str, party: Students, book: Notebook, data: bytes, known: Published
) -> StudentNotebook:
    answers = _answers(book.cells, known)
    untouched = OWN not in answers and all(
        source.strip() == known.stubs[i].strip() for i, source in answers.items()
    )
    marks = traces_of(notebook.tree(data))
    return StudentNotebook(file, party, known.topic, book.digest, answers, marks, untouched)


def _answers(cells: Iterable[Cell], known: Published) -> dict[str, str]:
    """What a notebook has for each exercise: the cells of its id, all of them, since all run, and
    cells of none that define a name it asks for, since that is how it is asked then; and the rest
    that a student added: nothing that was handed out."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        source = cell.source.strip()
        if cell.is_code and cell.grade_id in known.stubs:
            found[cell.grade_id].append(cell.source)
        elif cell.is_code and source and source not in known.sources:
            names = defined(source)
            of = [i for i, asked in known.entries.items() if asked & names]
            for exercise_id in of or [OWN]:
                found[exercise_id].append(cell.source)
    return {exercise_id: "\n\n".join(sources) for exercise_id, sources in found.items()}


def compare_class(
    submissions: Sequence[Submission],
    least: float = LEAST,
    exercise: str = "",
    scheme: Scheme | None = None,
    handed_out: Path | None = None,
    told: Progress = lambda what, done, of: None,
    source: Source = COURSE,
    students: Sequence[Student] = (),
) -> Report:
    """Compare a class, with `students` as its roster, on the exercises of `source`. Raises
    ValueError if no notebook has `exercise`, or `handed_out` is no release."""
    notebooks, unreadable = read_notebooks(submissions, scheme, source, handed_out, told, students)
    stem = source.catalog().stem
    known = {
        t: similar_known.load_published(t, stem(t), handed_out)
        for t in sorted({p.topic for p in notebooks})
    }
    wanted = [(t, i) for t, k in known.items() for i in (*k.titles, OWN) if exercise in ("", i)]
    if exercise and known and not wanted:
        asked = ", ".join(i for k in known.values() for i in k.titles)
        raise ValueError(f"no submission is of an exercise {exercise!r}; there are: {asked}")
    by_topic = {t: [p for p in notebooks if p.topic == t] for t in known}
    compared: list[Compared] = []
    for n, (topic, exercise_id) in enumerate(wanted, 1):
        compared.append(_compare(by_topic[topic], known[topic], exercise_id, least))
        told("comparing", n, len(wanted))
    marks = {t: _traces(by_topic[t], k, exercise) for t, k in known.items()}
    groups, left_out = groups_of(compared, marks)
    return Report(
        least, tuple(notebooks), tuple(unreadable), tuple(compared), tuple(groups), known, left_out
    )


def _compare(
    notebooks: Iterable[StudentNotebook], known: Published, exercise_id: str, least: float
) -> Compared:
    there = [p for p in notebooks if exercise_id in p.answers]
    answers = [Answer(p.file, p.party, p.answers[exercise_id]) for p in there]
    title = known.titles.get(exercise_id, "Cells of their own")
    solution = known.solutions.get(exercise_id, frozenset())
    return compare(
        known.topic, exercise_id, title, answers, known.given, known.published, solution, least
    )


def _traces(
    notebooks: Sequence[StudentNotebook], known: Published, exercise: str
) -> dict[Mark, dict[str, Students]]:
    """By mark that the course does not show: the files that have it, with their parties. An
    untouched notebook has none."""
    people = {name.casefold(): name for p in notebooks for name in p.party if len(name) >= 3}
    found: dict[Mark, dict[str, Students]] = defaultdict(dict)
    has = cache(known.has)
    twins = Counter(p.digest for p in notebooks)
    for book in notebooks:
        if book.untouched:
            continue
        marks = set(book.traces.marks(known.traces))
        for exercise_id, source in book.answers.items():
            if exercise in ("", exercise_id):
                marks |= words(source)
        if twins[book.digest] > 1 and _has_own(book, known):
            marks.add(Mark("file", book.digest, True))
        for mark in marks:
            if not has(mark):
                found[mark][book.file] = book.party
        for entry, name in named(book.traces.metadata, people):
            if name not in book.party:
                theirs = {p.file: p.party for p in notebooks if name in p.party}
                mark = Mark("person", f"{entry}, in {book.file}", True)
                found[mark] |= {book.file: book.party, **theirs}
    return found


def _has_own(book: StudentNotebook, known: Published) -> bool:
    """Whether anything is neither given out nor published: else two can be alike by chance."""
    sources = book.answers.values()
    return any(book.traces.marks(known.traces)) or any(
        not fragments.fragments_of(s).fragments <= known.published
        or any(not known.has(m) for m in words(s))
        for s in sources
    )
