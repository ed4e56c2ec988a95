"""Near-identical answers are found through any disguise of form; what is independent, common or
published is held against nobody."""

from __future__ import annotations

import ast
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from exercise_tools import right_answers
from typer.testing import CliRunner

from twophase.checks import registry
from twophase.cli.main import build
from twophase.grading.course.roster_file import Student
from twophase.grading.intake.submissions import Submission
from twophase.grading.release.release import course_root
from twophase.grading.scores import gradebook
from twophase.grading.similar import class_comparison, fragments
from twophase.grading.similar import page as similar_page
from twophase.grading.similar import traces as similar_traces
from twophase.grading.similar.class_comparison import Report
from twophase.grading.similar.fragments import fragments_of
from twophase.grading.similar.groups import cliques
from twophase.grading.similar.pairs import ENOUGH, Answer, Compared, compare, weight

TOPIC, ATTENTION, RAGGED = "kv_cache", "kv_cache-cached_attention", "kv_cache-ragged"
Cells = dict[str, Any]


def released(topic: str = TOPIC) -> Cells:
    tree: Cells = json.loads(
        (course_root() / "exercises" / f"{registry.stem(topic)}.ipynb").read_text()
    )
    return tree


def answered(
    answers: dict[str, str], topic: str = TOPIC, own: tuple[Cells, ...] = (), **metadata: Any
) -> bytes:
    """The released notebook with these answers, cells of one's own, and more metadata."""
    tree = released(topic)
    for cell in tree["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        cell["source"] = answers.get(grade_id, cell["source"])
    tree["cells"] += own
    tree["metadata"] |= metadata
    return json.dumps(tree).encode()


def klass(folder: Path, papers: dict[str, bytes]) -> list[Submission]:
    """A folder per student with one notebook in it."""
    found = []
    for name, data in papers.items():
        path = folder / name / "03_kv_cache.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        found.append(Submission(path, f"{name}/03_kv_cache.ipynb"))
    return found


def read_report(folder: Path, papers: dict[str, bytes], **options: Any) -> Report:
    return class_comparison.compare_class(klass(folder, papers), **options)


def answer(slug: str, how: str) -> str:
    return (Path(__file__).parent / "answers" / TOPIC / f"{slug}__{how}.py").read_text()


def alone(sources: dict[str, str], least: float = 0.8) -> Compared:
    """Answers of one exercise, without any course around them."""
    none: frozenset[Any] = frozenset()
    answers = [Answer(name, (name,), source) for name, source in sources.items()]
    return compare("t", "t-x", "X", answers, none, none, none, least)


def pairs(found: Compared) -> set[tuple[str, str]]:
    return {(p.a.file, p.b.file) for p in found.pairs}


def groups(found: Report) -> list[tuple[str, ...]]:
    return [g.names for g in found.groups]


ORIGINAL = answer("cached_attention", "by_online_softmax")
OTHERS = {
    how: answer("cached_attention", how) for how in ("by_einsum_float64", "by_loops", "by_sdpa")
}


def rename(source: str) -> str:
    """Every name that a tree says is a variable's gets another."""

    class Renamer(ast.NodeTransformer):
        def __init__(self) -> None:
            tree = ast.parse(source)
            stored = {
                n.id
                for n in ast.walk(tree)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            self.names = {n: f"thing_{i}" for i, n in enumerate(sorted(stored))}

        def visit_Name(self, node: ast.Name) -> ast.Name:
            node.id = self.names.get(node.id, node.id)
            return node

    return ast.unparse(Renamer().visit(ast.parse(source)))


def reorder(source: str) -> str:
    """Every two neighbors among the plain assignments of a body change places, whether or not that
    runs."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for i in range(0, len(body) - 1, 2) if isinstance(body, list) else ():
            if isinstance(body[i], ast.Assign) and isinstance(body[i + 1], ast.Assign):
                body[i], body[i + 1] = body[i + 1], body[i]
    return ast.unparse(tree)


def hinted(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = ast.parse("torch.Tensor | None", mode="eval").body
            for arg in node.args.args:
                arg.annotation = ast.Name("float")
        for i, inner in enumerate(
            body if isinstance(body := getattr(node, "body", None), list) else []
        ):
            if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                node.body[i] = ast.copy_location(  # type: ignore[attr-defined]
                    ast.AnnAssign(inner.targets[0], ast.Name("object"), inner.value, 1), inner
                )
    return ast.unparse(ast.fix_missing_locations(tree))


def commented(source: str) -> str:
    lines = source.splitlines()
    return (
        "\n\n".join(f"{line}  # my own thought {n}" for n, line in enumerate(lines))
        .replace("=", " =  ")
        .replace(" =   =  ", "==")
    )


def padded(source: str) -> str:
    """Dead code after every simple statement of a function's first level that goes on."""
    ends = {
        statement.end_lineno: " " * statement.col_offset
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        if not hasattr(statement, "body") and not isinstance(statement, ast.Return)
    }
    out = []
    for n, line in enumerate(source.splitlines()):
        out.append(line)
        if (indent := ends.get(n + 1)) is not None:
            out.append(f"{indent}unused_{n} = [x * {n} + 1 for x in range({n} + 3) if x != {n}]")
    return "\n".join(out)


DISGUISES = {
    "renaming": rename,
    "reordering": reorder,
    "type hints": hinted,
    "dead code": padded,
    "all of these": lambda s: padded(hinted(reorder(rename(s)))),
}


@pytest.mark.parametrize("how", DISGUISES)
def test_a_copy_is_found_through_a_disguise_of_its_form(how: str, tmp_path: Path) -> None:
    disguised = DISGUISES[how](ORIGINAL)
    assert disguised != ORIGINAL
    sources = {**OTHERS, "original": ORIGINAL, "copy": disguised}
    found = read_report(tmp_path, {n: answered({ATTENTION: s}) for n, s in sources.items()})
    assert groups(found) == [("copy", "original")]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=[] if how == "all of these" else pytest.mark.more)
        for how in DISGUISES
    ],
)
def test_a_copy_of_each_right_answer_is_found_where_it_says_enough(how: str) -> None:
    """Over every exercise: nothing but the disguised pair is listed, and it is, unless the answer
    is short."""
    missed = []
    for topic in registry.topics():
        for exercise_id in registry.ids(topic):
            sources = {p.stem: p.read_text() for p in right_answers(exercise_id)}
            for name, source in sources.items():
                ast.parse(copy := DISGUISES[how](source))  # Python still
                found = alone({**sources, "copy": copy})
                assert pairs(found) <= {tuple(sorted(("copy", name)))}, exercise_id
                if len(fragments_of(source).fragments) >= 2 * ENOUGH and not found.pairs:
                    missed.append(f"{exercise_id} {name}")
    assert missed == []


def test_comments_and_spacing_change_no_fragment_and_commas_of_a_formatter_neither() -> None:
    assert (
        fragments_of("x = f(a,\n  b, # why\n )\ny = 'a' + \"b\"").fragments
        == fragments_of("q=f( r , s )\n# no\nz = \"a\" + 'b'").fragments
    )
    assert (
        fragments_of("total += f(a, 2, 3)").fragments
        == fragments_of("t = t + f(b, 2.0, 3)").fragments
    )
    assert (
        fragments_of("a, b = f(x, 1), g(y, 2)").fragments
        == fragments_of("b = g(y, 2)\na = f(x, 1)").fragments
    )


@pytest.mark.parametrize(
    "disguise",
    [
        lambda s: "\n".join(f"{line}  # right?" for line in s.splitlines()),
        lambda s: f"{s}\n!ls \\\n  -l\nfiles = !ls\n",
        lambda s: "\n".join(f">>> {line}" for line in s.splitlines()),
        lambda s: "\n".join(f"    {line}" for line in s.splitlines()),
        lambda s: f"{s}\nprint('\\d')\nnp.sum?\n",
    ],
    ids=["a question behind each line", "commands", "prompts", "an indent", "a help"],
)
def test_no_comment_and_no_line_of_ipython_hides_an_answer(disguise: Callable[[str], str]) -> None:
    source = answer("ragged", "by_lists")
    found = fragments_of(disguise(source))
    assert found.parsed
    assert found.fragments >= fragments_of(source).fragments


def test_independent_right_answers_are_not_listed(tmp_path: Path) -> None:
    """All right answers of the tests, as a class of five; they were written to differ, a real class
    is closer."""
    papers: list[Submission] = []
    for topic in registry.topics():
        for k in range(5):
            found = {i: right_answers(i) for i in registry.ids(topic)}
            answers = {i: paths[k].read_text() for i, paths in found.items() if k < len(paths)}
            path = tmp_path / f"s{k}" / f"{registry.stem(topic)}.ipynb"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(answered(answers, topic))
            papers.append(Submission(path, f"s{k}/{path.name}"))
    found = class_comparison.compare_class(papers, least=0.5)
    assert groups(found) == []
    assert sum(c.students for c in found.exercises) > 80


def test_what_a_quarter_of_the_others_wrote_weighs_nothing_and_the_rarer_the_more() -> None:
    assert weight(2, 2) > 2  # bits; two of two
    assert weight(42, 100) == weight(27, 100) == 0
    assert weight(2, 1000) > weight(10, 1000) > weight(200, 1000) > 0


def test_an_answer_that_many_have_is_told_as_common_and_pairs_nobody(tmp_path: Path) -> None:
    papers = {f"s{n}": answered({ATTENTION: ORIGINAL + f"\n# {n}"}) for n in range(8)}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    found = read_report(tmp_path, papers)
    assert groups(found) == []
    assert [len(w.files) for c in found.exercises for w in c.common] == [8]
    assert "Common answers" in similar_page.page(found)


def test_a_class_that_follows_the_published_solution_is_told_so_and_nobody_is_listed(
    tmp_path: Path,
) -> None:
    solved = json.loads((course_root() / "solutions/03_kv_cache.ipynb").read_text())["cells"]
    text = next("".join(c["source"]) for c in solved if c["id"] == ATTENTION)
    papers = {
        f"s{n}": answered({ATTENTION: f"{rename(text)}\n# {n}" if n % 2 else text})
        for n in range(6)
    }
    found = read_report(tmp_path, papers)
    assert groups(found) == []
    assert "All 6 answers follow the published solution" in similar_page.page(found)


def test_short_answers_are_said_to_be_too_short(tmp_path: Path) -> None:
    papers = {
        n: answered({"kv_cache-max_batch": answer("max_batch", "by_division")})
        for n in ("ann", "bob", "cy")
    }
    found = read_report(tmp_path, papers, exercise="kv_cache-max_batch")
    one = found.exercises[0]
    assert (len(one.short), one.pairs) == (3, [])


def test_no_chain_of_likenesses_joins_strangers() -> None:
    """b is like a and like c, but a and c share too little: two groups, b in both."""
    chain = [f"x{n} = fun{n}(alpha{n} + {n}, beta[{n}], key{n}=gamma.delta{n})" for n in range(30)]
    rng = random.Random(1)
    others = {f"s{n}": "\n".join(statement(rng) for _ in range(20)) for n in range(20)}
    three = {name: "\n".join(chain[n : n + 20]) for name, n in (("a", 0), ("b", 3), ("c", 6))}
    found = alone(three | others)
    assert pairs(found) == {("a", "b"), ("b", "c")}
    assert {frozenset(p for (p,) in c) for c, _ in cliques(found.pairs)} == {
        frozenset("ab"),
        frozenset("bc"),
    }


def test_three_who_all_agree_are_one_group_with_three_pairs(tmp_path: Path) -> None:
    papers = {n: answered({ATTENTION: f"# {n}\n{ORIGINAL}"}) for n in ("ann", "bob", "cy")}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    found = read_report(tmp_path, papers)
    assert groups(found) == [("ann", "bob", "cy")]
    assert [len(a.pairs) for a in found.groups[0].agreements] == [3]
    assert found.groups[0].agreements[0].others == (1, 1, 1)


def test_a_team_and_a_students_own_versions_are_not_compared_with_themselves(
    tmp_path: Path,
) -> None:
    course = tmp_path / "course.yml"
    course.write_text("course: C\nassignments:\n  kv_cache: {}\ngroups:\n  team: [ann, bob]\n")
    scheme = gradebook.load_course(course)[0]
    papers = {n: answered({ATTENTION: ORIGINAL + f"\n# {n}"}) for n in ("ann", "bob")}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    submissions = klass(tmp_path / "in", papers)
    assert groups(class_comparison.compare_class(submissions, scheme=scheme)) == []
    again = Submission(submissions[0].path, "bob/again.ipynb", student="ann")
    assert groups(class_comparison.compare_class([submissions[0], again])) == []
    assert groups(class_comparison.compare_class(submissions)) == [("ann", "bob")]


def test_who_handed_in_together_or_under_a_platforms_number_is_the_student_of_the_roster(
    tmp_path: Path,
) -> None:
    """Gradescope's export names both of a team, Canvas's a number: neither is another student."""
    papers = {n: answered({ATTENTION: f"{ORIGINAL}\n# {n}"}) for n in ("together", "alone")}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    found = {s.name.partition("/")[0]: s for s in klass(tmp_path / "in", papers)}
    both = replace(found["together"], student="ann & bob")
    alone = replace(found["alone"], student="ann")
    rest = [s for name, s in found.items() if name in OTHERS]
    assert groups(class_comparison.compare_class([both, alone, *rest])) == []
    number = replace(found["alone"], name="annlee_4711_9_03_kv_cache.ipynb", student="4711")
    roster = [Student("ann", canvas_id="4711"), Student("bob")]
    assert groups(class_comparison.compare_class([both, number, *rest], students=roster)) == []
    stranger = replace(number, student="4712")
    assert groups(class_comparison.compare_class([both, stranger, *rest], students=roster)) == [
        ("4712", "ann + bob")
    ]


def own(source: str, cell_id: str) -> Cells:
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def given_id(source: str, cell_id: str, grade_id: str) -> Cells:
    return own(source, cell_id) | {"metadata": {"nbgrader": {"grade_id": grade_id}}}


HALF = len(ORIGINAL.splitlines()) // 2
HALVES = ["\n".join(ORIGINAL.splitlines()[part]) for part in (slice(HALF), slice(HALF, None))]
# how an answer is laid out by whom it was copied: what stands in its own cell, and the cells behind
LAID_OUT = {
    "with a second cell of its id below": (ORIGINAL, [given_id("z = 1", "b", ATTENTION)]),
    "with an empty cell of its id below": (ORIGINAL, [given_id("", "b", ATTENTION)]),
    "in a cell of no id, its own empty": ("", [own(ORIGINAL, "b")]),
    "in a cell of no id below the stub": (None, [own(ORIGINAL, "b")]),
    "in a cell of an id that nobody gave": ("", [given_id(ORIGINAL, "b", "mine-x")]),
    "in a cell of a given id": ("", [given_id(ORIGINAL, "b", f"{ATTENTION}-check")]),
    "in halves": (HALVES[0], [given_id(HALVES[1], "b", ATTENTION)]),
}


@pytest.mark.parametrize("how", LAID_OUT)
def test_a_copy_is_found_in_whatever_cells_the_grader_would_find_it(
    how: str, tmp_path: Path
) -> None:
    cell, behind = LAID_OUT[how]
    papers = {other: answered({ATTENTION: s}) for other, s in OTHERS.items()}
    papers["plain"] = answered({ATTENTION: ORIGINAL})
    papers["moved"] = answered({} if cell is None else {ATTENTION: cell}, own=tuple(behind))
    found = read_report(tmp_path, papers)
    assert groups(found) == [("moved", "plain")]
    assert [a.exercise.id for a in found.groups[0].agreements] == [ATTENTION]


def traces(found: Report) -> set[str]:
    return {t.mark.kind for g in found.groups for t in g.traces}


def test_a_copied_file_is_told_by_its_bytes_and_by_random_ids_and_metadata_that_travel_with_it(
    tmp_path: Path,
) -> None:
    a = answered({}, own=(own("1 + 1", "3f9a01bc"),), authors=[{"name": "Ann Example"}])
    b = answered({}, own=(own("2 + 2", "3f9a01bc"),), authors=[{"name": "Ann Example"}], x=1)
    found = read_report(
        tmp_path / "1", {"ann": a, "bob": b, "cy": answered({}, own=(own("3", "77a2b1c0"),))}
    )
    assert groups(found) == [("ann", "bob")]
    assert traces(found) == {"cell", "metadata"}
    assert "file" in traces(read_report(tmp_path / "2", {"ann": a, "bob": a}))


def test_ids_that_count_untouched_notebooks_and_released_ids_are_no_trace(tmp_path: Path) -> None:
    papers = {
        n: answered({}, own=(own(f"{n} = {i}", "cell-0012"),))
        for i, n in enumerate(("ann", "bob", "cy"))
    }
    assert groups(read_report(tmp_path / "1", papers)) == []
    untouched = answered({})
    assert groups(read_report(tmp_path / "2", {"ann": untouched, "bob": untouched})) == []


@pytest.mark.parametrize(
    "line", ["x = f(1) + 1 ", "x = f(1) + 1\t", "x = f( 1) + 1", "x = f(1 , 2)"]
)
def test_blanks_that_no_tool_writes_are_a_mark(line: str) -> None:
    assert similar_traces.Mark("spacing", line) in similar_traces.words(line)
    assert not similar_traces.words("x = f(1, 2) + 1")


def test_another_students_name_in_the_metadata_is_told(tmp_path: Path) -> None:
    papers = {
        "ann-lee": answered({}, own=(own("1", "a"),)),
        "bob": answered({}, own=(own("2", "a"),), owner="Ann-Lee"),
    }
    assert "person" in traces(read_report(tmp_path, papers))


def test_one_long_comment_in_common_makes_no_group_and_several_do(tmp_path: Path) -> None:
    said = [
        f"# I wonder whether the {x} could be seen from over here" for x in ("moon", "tide", "barn")
    ]

    def paper(name: str, n: int) -> bytes:
        return answered({"kv_cache-max_batch": "\n".join([*said[:n], f"{name} = 1"])})

    assert groups(read_report(tmp_path / "1", {n: paper(n, 1) for n in ("ann", "bob")})) == []
    assert groups(read_report(tmp_path / "3", {n: paper(n, 3) for n in ("ann", "bob")})) == [
        ("ann", "bob")
    ]


HOSTILE = {
    "deep brackets": "x = " + "[" * 60_000,
    "deep tree": "x = " + "-" * 60_000 + "1",
    "long sum": "x = " + "1+" * 30_000 + "1",
    "chain": "x = a" + ".b" * 30_000,
    "null": "x = 1\0\ny = f(a, b, c)",
    "surrogate": "x = '\ud800' + f(a, b, c)",
    "huge number": "x = " + "9" * 60_000,
    "open text": 'x = """' * 20_000,
    "open quotes": "'" * 60_000,
    "long": "x = f(a, b + 1)\n" * 200_000,
    "spaces": " " * 60_000 + "x" + " " * 60_000 + ",",
    "elif": "if x:\n pass\n" + "elif x:\n pass\n" * 4_000,
    "backslashes": "\\" * 60_000,
    "question": "%magic\n!ls\nx = f(a, b, c, d)\nhelp?",
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=pytest.mark.more if what in ("long", "elif") else [])
        for what in HOSTILE
    ],
)
def test_no_text_breaks_it_off(what: str, tmp_path: Path) -> None:
    papers = {n: answered({ATTENTION: HOSTILE[what] + f"\n{n}"}) for n in ("ann", "bob")}
    found = read_report(tmp_path, papers | {"cy": answered({ATTENTION: ORIGINAL})})
    assert len(found.notebooks) == 3
    json.dumps(similar_page.as_json(found))
    similar_page.page(found)


def test_what_does_not_parse_is_compared_by_its_lines(tmp_path: Path) -> None:
    broken = ORIGINAL + "\nreturn oops(((\n"
    sources = {**OTHERS, "original": ORIGINAL, "copy": rename(ORIGINAL) + "\ndef broken(:\n"}
    assert not fragments_of(broken).parsed
    found = read_report(tmp_path, {n: answered({ATTENTION: s}) for n, s in sources.items()})
    assert groups(found) == [("copy", "original")]


def test_files_that_cannot_be_read_are_named_and_odd_trees_do_no_harm(tmp_path: Path) -> None:
    odd = json.loads(answered({}))
    odd["cells"] += [
        3,
        None,
        {"id": 7, "metadata": [1], "cell_type": "code", "source": 4},
        own("1", "x"),
    ] * 400
    odd["metadata"] |= {"authors": {"a": [[[["deep"]]]] * 3, "name": 10**400}}
    many = {"cells": [own("x", "y")] * 3000}
    papers = {
        "ann": b"junk",
        "bob": json.dumps(odd).encode(),
        "cy": json.dumps(many).encode(),
        "dee": b"",
    }
    found = read_report(tmp_path, papers)
    assert [f for f, _ in found.unreadable] == [
        f"{n}/03_kv_cache.ipynb" for n in ("ann", "cy", "dee")
    ]
    assert (
        similar_traces.traces_of([])
        == similar_traces.traces_of({"cells": 3})
        == similar_traces.FileTraces()
    )


def statement(rng: random.Random) -> str:
    names = [rng.choice("abcdefgh") for _ in range(4)]
    call = rng.choice(("torch.cat", "np.sum", "max", "math.exp", "sorted", "zip"))
    op, attribute = rng.choice("+-*/@"), rng.choice(("shape", "sum", "T", "mean", "clone"))
    return (
        f"{names[0]} = {call}({names[1]}.{attribute}, {names[2]} {op} {rng.randrange(97)},"
        f" {names[3]}[{rng.randrange(5)}])"
    )


def test_a_large_class_is_not_compared_pair_by_pair() -> None:
    """400 random answers and ten copies: all ten are found, after looking at few of the 84,000
    pairs."""
    rng = random.Random(7)
    sources = {f"s{n:04}": "\n".join(statement(rng) for _ in range(20)) for n in range(400)}
    truth = set()
    for n in range(10):
        sources[f"t{n:04}"] = reorder(padded(sources[f"s{n:04}"]))
        truth.add((f"s{n:04}", f"t{n:04}"))
    found = alone(sources)
    assert pairs(found) == truth
    assert found.comparisons < 4_000 < len(list(combinations(sources, 2))) / 20


def test_looking_at_few_pairs_finds_the_same_as_looking_at_all() -> None:
    """The filter loses nothing: against every pair of a class with near copies of all degrees."""
    rng = random.Random(3)
    sources = {}
    for family in range(12):
        base = [statement(rng) for _ in range(24)]
        for kept in (24, 20, 16, 12):
            sources[f"s{family:02}-{kept}"] = "\n".join(
                base[:kept] + [statement(rng) for _ in range(24 - kept)]
            )
    found = alone(sources, least=0.6)
    frags = {
        n: {f for f in fragments_of(s).fragments if found.weights[f] > 0}
        for n, s in sources.items()
    }
    worth = {n: sum(found.weights[f] for f in fs) for n, fs in frags.items()}
    expected = {
        (a, b)
        for a, b in combinations(sorted(sources), 2)
        if min(len(frags[a]), len(frags[b])) >= ENOUGH
        and sum(found.weights[f] for f in frags[a] & frags[b]) >= 0.6 * min(worth[a], worth[b])
    }
    assert len(expected) > 15
    assert pairs(found) == expected


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not [a for a, _ in attrs if a.startswith("on") or a in ("src", "href")]


def test_the_page_escapes_everything_and_marks_what_is_the_same(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    source = f"{ORIGINAL}\n# {script}\nx = '{script}\x1b[2J\u202e'"
    papers = {n: answered({ATTENTION: source}, owner=script, x=n) for n in ("ann", "b<b>ob")}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    found = read_report(tmp_path, papers)
    page = similar_page.page(found)
    tags = Tags()
    tags.feed(page)
    assert groups(found) == [("ann", "b<b>ob")]
    assert not {"script", "b", "img", "link"} & set(tags.seen)
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert page.count("<span class=same>") > 10
    assert similar_page.CAVEAT in page


def run(*arguments: object) -> tuple[int, str]:
    args = ["similar", *map(str, arguments)]
    done = CliRunner().invoke(build(args), args)
    return done.exit_code, done.output


def test_the_command_writes_both_files_and_nothing_else_and_says_the_caveat(tmp_path: Path) -> None:
    papers = {n: answered({ATTENTION: ORIGINAL}) for n in ("ann", "bob")}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    klass(tmp_path / "in", papers)
    out = tmp_path / "grades"
    out.mkdir()
    (out / "results.jsonl").write_text("kept")
    code, said = run(tmp_path / "in", "--out", out)
    assert code == 1
    assert "Agreement is a reason to talk to people, not a finding." in " ".join(said.split())
    assert {p.name for p in out.iterdir()} == {"results.jsonl", "similar.html", "similar.json"}
    assert (out / "results.jsonl").read_text() == "kept"
    data = json.loads((out / "similar.json").read_text())
    assert data["schema"] == similar_page.SCHEMA
    assert data["groups"][0]["students"] == [["ann"], ["bob"]]
    again = (out / "similar.json").read_bytes(), (out / "similar.html").read_bytes()
    run(tmp_path / "in", "--out", out)
    assert again == ((out / "similar.json").read_bytes(), (out / "similar.html").read_bytes())
    shutil.rmtree(tmp_path / "in" / "bob")
    assert run(tmp_path / "in", "--out", out)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--least", "0"), "share"),
        (("--least", "nan"), "share"),
        (("--exercise", "kv_cache-nothing"), "no submission is of an exercise"),
        (("--course", "nowhere.yml"), "there is no file"),
        (("--release", "nowhere"), "is no folder"),
    ],
)
def test_bad_usage_is_one_sentence(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    klass(tmp_path / "in", {"ann": answered({})})
    args = ["similar", str(tmp_path / "in"), "--out", str(tmp_path / "out"), *arguments]
    done = CliRunner().invoke(build(args), args)
    assert isinstance(done.exception, ValueError)
    assert says in str(done.exception)


def test_a_release_of_ones_own_is_what_was_given(tmp_path: Path) -> None:
    """Code that this release gives out in an own way is nobody's own."""
    tree = released()
    tree["cells"].append(own(ORIGINAL, "given-here"))
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "03_kv_cache.ipynb").write_text(json.dumps(tree))
    papers = {n: answered({ATTENTION: f"# {n}\n{ORIGINAL}"}) for n in ("ann", "bob", *OTHERS)}
    papers |= {how: answered({ATTENTION: s}) for how, s in OTHERS.items()}
    assert groups(read_report(tmp_path / "1", papers)) == [("ann", "bob")]
    assert groups(read_report(tmp_path / "2", papers, handed_out=tmp_path / "release")) == []


def test_a_cap_on_steps_is_told() -> None:
    assert fragments_of("x = f(a, b + 1)\n" * 500_000).cut
    assert not fragments_of(ORIGINAL).cut
    assert len(fragments_of("x = f(a, b + 1)\n" * 5000).statements) * 6 <= fragments.MAX_STEPS + 10
