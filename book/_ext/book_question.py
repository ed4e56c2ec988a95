"""``{question}``: a question with choices, each answered with its reason, on the page itself.

Without script the reasons are folded under their choices; house.js turns them into an answer to the
reader's choice.
"""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
CHOICE = re.compile(r"^[-*] \[(?P<mark>[ xX])\] ?(?P<text>.*)$")


class question(nodes.General, nodes.Element):  # noqa: N801 (docutils names its nodes so)
    """The whole box; attributes: qid, multiple."""


class question_stem(nodes.General, nodes.Element):  # noqa: N801 (docutils names its nodes so)
    """What is asked, inline: the legend."""


class question_choice(nodes.General, nodes.Element):  # noqa: N801 (docutils names its nodes so)
    """One choice; attributes: qid, number, correct, multiple."""


class question_label(nodes.General, nodes.Element):  # noqa: N801 (docutils names its nodes so)
    """The text of a choice, inline; attributes: target."""


class question_reason(nodes.General, nodes.Element):  # noqa: N801 (docutils names its nodes so)
    """Why the choice is right or wrong; attributes: correct."""


@dataclass
class Choice:
    correct: bool
    text: list[str] = field(default_factory=list)

    def split(self) -> tuple[str, str]:
        """The choice and its reason, separated by the first ``||``."""
        text, _, reason = "\n".join(self.text).partition("||")
        return text.strip(), reason.strip()


def parse_choices(lines: list[str]) -> tuple[list[str], list[Choice]]:
    """What stands before the first choice, and the choices. A line that is indented, or empty,
    belongs to the choice above."""
    before: list[str] = []
    choices: list[Choice] = []
    for line in lines:
        match = CHOICE.match(line)
        if match:
            choices.append(Choice(match["mark"] != " ", [match["text"]]))
        elif choices:
            choices[-1].text.append(line.strip())
        else:
            before.append(line)
    return before, choices


def problems(choices: list[Choice]) -> list[str]:
    """What is wrong with the choices, one sentence each."""
    found = []
    if len(choices) < 2:
        found.append("a question needs two choices or more, written `- [ ] choice || reason`")
    if choices and not any(choice.correct for choice in choices):
        found.append("no choice is marked correct: write `- [x]` for the right one")
    for number, choice in enumerate(choices, 1):
        text, reason = choice.split()
        if not text:
            found.append(f"choice {number} is empty")
        if not reason:
            found.append(f"choice {number} has no reason: write it after `||`")
    return found


class QuestionDirective(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"id": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        before, choices = parse_choices(list(self.content))
        qid = self.options.get("id", "")
        if not qid:
            self.complain("a question needs an `:id:`, unique in the book")
        self.register(qid)
        for problem in problems(choices):
            self.complain(problem)
        multiple = sum(choice.correct for choice in choices) > 1
        box = question(qid=qid, multiple=multiple)
        stem = question_stem()
        self.parse_inline_block(self.arguments[0], stem)
        box += stem
        if any(line.strip() for line in before):
            body = nodes.container(classes=["tp-question-body"])
            self.state.nested_parse(
                StringList(before, self.content.source(0)), self.content_offset, body
            )
            box += body
        for number, choice in enumerate(choices, 1):
            box += self.choice_node(qid, number, choice, multiple)
        self.set_source_info(box)
        return [box]

    def choice_node(self, qid: str, number: int, choice: Choice, multiple: bool) -> question_choice:
        text, reason = choice.split()
        node = question_choice(qid=qid, number=number, correct=choice.correct, multiple=multiple)
        label = question_label(target=f"q-{qid}-{number}")
        self.parse_inline_block(text, label)
        why = question_reason(correct=choice.correct)
        self.state.nested_parse(
            StringList(reason.split("\n"), self.get_source_info()[0]), self.content_offset, why
        )
        node += [label, why]
        return node

    def parse_inline_block(self, text: str, into: nodes.Element) -> None:
        """Labels and legends hold phrasing only: one paragraph, unwrapped."""
        holder = nodes.container()
        self.state.nested_parse(
            StringList(text.split("\n"), self.get_source_info()[0]), self.content_offset, holder
        )
        if len(holder.children) != 1 or not isinstance(holder[0], nodes.paragraph):
            self.complain(
                "a question and its choices are one line of text each, not lists or blocks:"
                f" {text[:60]!r}"
            )
        for child in holder.children:
            into += child.children if isinstance(child, nodes.paragraph) else [child]

    def register(self, qid: str) -> None:
        seen: dict[str, list[tuple[str, int]]] = getattr(self.env, "tp_questions", None) or {}
        self.env.tp_questions = seen  # type: ignore[attr-defined]
        if qid:
            seen.setdefault(qid, []).append((self.env.docname, self.lineno))

    def complain(self, message: str) -> None:
        logger.warning("question: %s", message, location=self.get_location(), type="question")


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    for places in getattr(env, "tp_questions", {}).values():
        places[:] = [place for place in places if place[0] != docname]


def merge(app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
    mine: dict[str, list[tuple[str, int]]] = getattr(env, "tp_questions", None) or {}
    env.tp_questions = mine  # type: ignore[attr-defined]
    for qid, places in getattr(other, "tp_questions", {}).items():
        mine.setdefault(qid, []).extend(place for place in places if place[0] in docnames)


def warn_duplicates(app: Sphinx, env: BuildEnvironment) -> None:
    for qid, places in getattr(env, "tp_questions", {}).items():
        for docname, line in places[1:]:
            logger.warning(
                "question: the id %r is used on %s too",
                qid,
                places[0][0],
                location=(docname, line),
                type="question",
            )


def visit_question(self: Any, node: nodes.Element) -> None:
    kind = "several" if node["multiple"] else "one"
    self.body.append(
        f'<form class="tp-question" id="question-{node["qid"]}" data-question="{node["qid"]}"'
        f' data-kind="{kind}"><fieldset>\n'
    )


def depart_question(self: Any, node: nodes.Element) -> None:
    self.body.append(
        '<div class="tp-answer" role="status" aria-live="polite"></div></fieldset></form>\n'
    )


def visit_stem(self: Any, node: nodes.Element) -> None:
    self.body.append('<legend><span class="tp-kicker">Question</span> ')


def depart_stem(self: Any, node: nodes.Element) -> None:
    self.body.append("</legend>\n")


def visit_choice(self: Any, node: nodes.Element) -> None:
    kind = "checkbox" if node["multiple"] else "radio"
    right = "yes" if node["correct"] else "no"
    self.body.append(
        f'<div class="tp-choice" data-correct="{right}"><input type="{kind}"'
        f' id="q-{node["qid"]}-{node["number"]}" name="q-{node["qid"]}" value="{node["number"]}"'
        ' autocomplete="off">'
    )


def depart_choice(self: Any, node: nodes.Element) -> None:
    self.body.append("</div>\n")


def visit_label(self: Any, node: nodes.Element) -> None:
    # Some readers skip formulas when they compute a name, so a choice that is only a formula is
    # named by its number.
    spoken = any(
        not isinstance(child, nodes.math) and child.astext().strip() for child in node.children
    )
    number = (
        ""
        if spoken
        else f'<span class="tp-quiet">Choice {node["target"].rpartition("-")[2]}: </span>'
    )
    self.body.append(f'<label for="{node["target"]}">{number}')


def depart_label(self: Any, node: nodes.Element) -> None:
    self.body.append("</label>")


def visit_reason(self: Any, node: nodes.Element) -> None:
    verdict = "Right." if node["correct"] else "No."
    self.body.append(
        '<details class="tp-reason"><summary>Is it this'
        f" one?</summary><div><strong>{verdict}</strong> "
    )


def depart_reason(self: Any, node: nodes.Element) -> None:
    self.body.append("</div></details>")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(question, html=(visit_question, depart_question))
    app.add_node(question_stem, html=(visit_stem, depart_stem))
    app.add_node(question_choice, html=(visit_choice, depart_choice))
    app.add_node(question_label, html=(visit_label, depart_label))
    app.add_node(question_reason, html=(visit_reason, depart_reason))
    app.add_directive("question", QuestionDirective)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", lambda app, env: warn_duplicates(app, env))
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
