"""A page's style sheets and drawings without what nobody sees."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import book_figures  # noqa: E402
import book_trim  # noqa: E402

WORDS = book_trim.words_of(
    ['<p class="used other" id="here">a</p><script>toggle("by-inline")</script>'],
    ['element.classList.add("by-script")'],
)


@pytest.mark.parametrize(
    ("css", "left"),
    [
        (".used { color: red; }", ".used{color: red}"),
        (".unused { color: red; }", ""),
        (".used .unused, #here > p { margin: 0 }", "#here > p{margin: 0}"),
        (".by-script::after, .by-inline { margin: 0 }", ".by-script::after,.by-inline{margin: 0}"),
        ("p:not(.unused) { margin: 0 }", "p:not(.unused){margin: 0}"),
        (":is(.unused, p) { margin: 0 }", ":is(.unused, p){margin: 0}"),
        ("@media print { .unused { margin: 0 } }", ""),
        ("@media print { .used { margin: 0 } }", "@media print{.used{margin: 0}}"),
        ('[data-mode=".unused"] p { margin: 0 }', '[data-mode=".unused"] p{margin: 0}'),
        ("/* words */ p { margin: 0 /* here */ }", "p{margin: 0}"),
        ("@keyframes spin { to { rotate: 1turn } }", "@keyframes spin { to { rotate: 1turn } }"),
    ],
)
def test_a_rule_stays_exactly_if_a_page_or_a_script_may_ask_for_it(css: str, left: str) -> None:
    assert book_trim.trimmed(css, WORDS) == left


def test_a_shortened_figure_keeps_its_texts_its_places_and_what_is_asked_for() -> None:
    svg = (
        '<svg viewBox="0 0 469.19952 281.99952"><defs>\n  <path id="f1-m1" d="M 0 0 \nL 0 3.5 \n"'
        ' style="stroke: red; stroke-width: 0.7"/>\n </defs>\n <g id="f1-axes">\n'
        '  <g clip-path="url(#f1-c)">'
        '<use href="#f1-m1" x="68.626576" y="-0.123456"/></g>\n  <text x="10.000001"'
        ' transform="rotate(-0 1 2)">0.123456</text>\n </g><clipPath id="f1-c"/>\n</svg>'
    )
    assert book_figures.shortened(svg) == (
        '<svg viewBox="0 0 469.2 282"><defs><path id="f1-m1" d="M0 0L0 3.5"'
        ' style="stroke:red;stroke-width:0.7"/></defs><g clip-path="url(#f1-c)">'
        '<use href="#f1-m1" x="68.63" y="-0.1235"/></g><text x="10">0.123456</text>'
        '<clipPath id="f1-c"/></svg>'
    )


def test_marks_of_one_style_say_it_once_and_others_for_themselves() -> None:
    def group(*styles: str) -> str:
        marks = (f'<use href="#m" x="{x}" style="{style}"/>' for x, style in enumerate(styles))
        return f'<g clip-path="url(#c)">{"".join(marks)}</g>'

    once = (
        '<g clip-path="url(#c)" style="fill:red"><use href="#m" x="0"/><use href="#m" x="1"/></g>'
    )
    assert book_figures.shortened(group("fill:red", "fill:red")) == once
    for kept in (group("fill:red"), group("fill:red", "fill:blue")):
        assert book_figures.shortened(kept) == kept
    own = group("fill:red", "fill:red").replace("<g ", '<g style="stroke:blue" ')
    assert book_figures.shortened(own) == own


def test_what_a_figure_asks_for_gets_a_short_id_that_no_other_figure_has() -> None:
    svg = (
        '<path id="m09525549f7"/><clipPath id="p1"/><g id="axes_1" clip-path="url(#p1)">'
        '<use href="#m09525549f7"/><use href="#m09525549f7"/></g>'
    )
    assert book_figures.with_short_ids(svg, "f6-") == (
        '<path id="f6-1"/><clipPath id="f6-0"/><g id="f6-axes_1" clip-path="url(#f6-0)">'
        '<use href="#f6-1"/><use href="#f6-1"/></g>'
    )
