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
from twophase.grading.files.notebook import Cell, Notebook, isolated
from twophase.grading.intake.submissions import Submission
from twophase.grading.release.release import Source
from twophase.grading.scores.roster import Roster, students_of
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
    """One notebook, read. `party`: whom it counts for; papers with one in common do not compare."""

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
    papers: tuple[StudentNotebook, ...]
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


def read_papers(
    submissions: Sequence[Submission],
    scheme: Scheme | None,
    source: Source,
    handed_out: Path | None,
    told: Progress,
    students: Sequence[Student] = (),
) -> tuple[list[StudentNotebook], list[tuple[str, str]]]:
    """All papers, and the files that cannot be read with the reason. Raises ValueError if
    `handed_out` is no release."""
    roster = Roster(students)
    papers: list[StudentNotebook] = []
    unreadable: list[tuple[str, str]] = []
    for n, submission in enumerate(submissions, 1):
        try:
            data = submission.read()
            book = notebook.parse(data)
            topic = source.topic_of(book, submission.name.rpartition("/")[2])
            known = similar_known.load_published(topic, source.catalog().stem(topic), handed_out)
            party = party_of(submission, topic, scheme, roster)
            with isolated():
                papers.append(_paper(submission.name, party, book, data, known))
        except Unreadable as e:
            unreadable.append((submission.name, str(e)))
        told("reading", n, len(submissions))
    return papers, unreadable


def _paper(
    file: str, party: Students, book: Notebook, data: bytes, known: Published
) -> StudentNotebook:
    # the last counts
    answers = {c.grade_id: c.source for c in book.cells if c.is_code and c.grade_id in known.stubs}
    own = "\n\n".join(c.source for c in book.cells if _is_own(c, known))
    untouched = not own and all(s.strip() == known.stubs[i].strip() for i, s in answers.items())
    answers |= {OWN: own} if own else {}
    marks = traces_of(notebook.tree(data))
    return StudentNotebook(file, party, known.topic, book.digest, answers, marks, untouched)


def _is_own(cell: Cell, known: Published) -> bool:
    """Whether a student added this code: no answer, no check, and nothing that was handed out."""
    source = cell.source.strip()
    return cell.is_code and bool(source) and not cell.grade_id and source not in known.sources


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
    ValueError if no paper has `exercise`, or `handed_out` is no release."""
    papers, unreadable = read_papers(submissions, scheme, source, handed_out, told, students)
    stem = source.catalog().stem
    known = {
        t: similar_known.load_published(t, stem(t), handed_out)
        for t in sorted({p.topic for p in papers})
    }
    wanted = [(t, i) for t, k in known.items() for i in (*k.titles, OWN) if exercise in ("", i)]
    if exercise and known and not wanted:
        asked = ", ".join(i for k in known.values() for i in k.titles)
        raise ValueError(f"no submission is of an exercise {exercise!r}; there are: {asked}")
    by_topic = {t: [p for p in papers if p.topic == t] for t in known}
    compared: list[Compared] = []
    for n, (topic, exercise_id) in enumerate(wanted, 1):
        compared.append(_compare(by_topic[topic], known[topic], exercise_id, least))
        told("comparing", n, len(wanted))
    marks = {t: _traces(by_topic[t], k, exercise) for t, k in known.items()}
    groups, left_out = groups_of(compared, marks)
    return Report(
        least, tuple(papers), tuple(unreadable), tuple(compared), tuple(groups), known, left_out
    )


def _compare(
    papers: Iterable[StudentNotebook], known: Published, exercise_id: str, least: float
) -> Compared:
    there = [p for p in papers if exercise_id in p.answers]
    answers = [Answer(p.file, p.party, p.answers[exercise_id]) for p in there]
    title = known.titles.get(exercise_id, "Cells of their own")
    solution = known.solutions.get(exercise_id, frozenset())
    return compare(
        known.topic, exercise_id, title, answers, known.given, known.published, solution, least
    )


def _traces(
    papers: Sequence[StudentNotebook], known: Published, exercise: str
) -> dict[Mark, dict[str, Students]]:
    """By mark that the course does not show: the files that have it, with their parties. An
    untouched notebook has none."""
    people = {name.casefold(): name for p in papers for name in p.party if len(name) >= 3}
    found: dict[Mark, dict[str, Students]] = defaultdict(dict)
    has = cache(known.has)
    twins = Counter(p.digest for p in papers)
    for paper in papers:
        if paper.untouched:
            continue
        marks = set(paper.traces.marks(known.traces))
        for exercise_id, source in paper.answers.items():
            if exercise in ("", exercise_id):
                marks |= words(source)
        if twins[paper.digest] > 1 and _has_own(paper, known):
            marks.add(Mark("file", paper.digest, True))
        for mark in marks:
            if not has(mark):
                found[mark][paper.file] = paper.party
        for entry, name in named(paper.traces.metadata, people):
            if name not in paper.party:
                theirs = {p.file: p.party for p in papers if name in p.party}
                mark = Mark("person", f"{entry}, in {paper.file}", True)
                found[mark] |= {paper.file: paper.party, **theirs}
    return found


def _has_own(paper: StudentNotebook, known: Published) -> bool:
    """Whether anything is neither given out nor published: else two can be alike by chance."""
    sources = paper.answers.values()
    return any(paper.traces.marks(known.traces)) or any(
        not fragments.fragments_of(s).fragments <= known.published
        or any(not known.has(m) for m in words(s))
        for s in sources
    )
