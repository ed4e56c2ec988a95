"""A release tried before anybody gets it: the untouched notebook scores nothing, the model solution
everything, graded as a submission is, in its jail, against the release as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from twophase.checks import prove
from twophase.checks.exercise import Exercise
from twophase.checks.extra import Extra
from twophase.grading.files.notebook import parse, read_notebook
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.release.release import Source
from twophase.grading.results.grade import Graded
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.zygote_handle import Zygote

SEED = "rehearsal"


def prove_checks(folders: Iterable[Extra]) -> Iterator[str]:
    """A sentence for each exercise of these folders whose check does not hold what one must."""
    for folder in folders:
        for exercise_id in folder.ids():
            if wrong := prove.everything(folder.load(exercise_id)):
                yield f"{folder.path_of(exercise_id)}: {wrong}"


def rehearse(
    source: Source,
    solutions: Mapping[str, bytes],
    zygote: Zygote,
    told: Callable[[int], None] = lambda done: None,
) -> Iterator[str]:
    """A sentence for each exercise that is not judged as it should be, in the release `source`;
    `told` hears how many topics are done."""
    benches = Benches()
    for done, (topic, solution) in enumerate(solutions.items()):
        told(done)
        released = source.load(topic)
        how = zygote, released, benches, Limits(), SEED
        place = (source.folder() or Path()) / "exercises" / f"{source.catalog().stem(topic)}.ipynb"
        for graded in SubmissionJudge(*how, read_notebook(place)).grade().questions:
            if (graded.verdict.status, graded.verdict.points) != ("not_yet", 0):
                yield (
                    f"the untouched notebook: {_said(graded, released.exercises)}, not “not written"
                    " yet”"
                )
        for graded in SubmissionJudge(*how, parse(solution)).grade().questions:
            if not graded.verdict.right:
                yield f"the model solution: {_said(graded, released.exercises)}"


def _said(graded: Graded, exercises: Mapping[str, Exercise]) -> str:
    v, title = graded.verdict, exercises[graded.verdict.exercise_id].title
    return f"{v.exercise_id} ({title}) is judged {v.status}: {v.message}"[:500]
