"""The book's directives on small books of their own: what they render, and what they warn about."""

import json
import re
import sys
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

PARTS = [
    "book_question",
    "book_sources_say",
    "book_chapter",
    "book_exercises",
    "book_figures",
    "book_glossary",
    "book_math",
    "book_search",
    "book_tables",
    "book_words",
]
SETTINGS = {
    "extensions": ["myst_nb", *PARTS],
    "myst_enable_extensions": ["colon_fence", "dollarmath"],
    "nb_execution_mode": "off",
    "html_math_renderer": "mathml",
    "html_theme": "basic",
    "root_doc": "index",
}


def make_book(folder: Path, pages: dict[str, str]) -> tuple[Path, str]:
    """Builds the pages; the folder of HTML and all warnings as one text."""
    source = folder / "source"
    for name, text in {"index": "# Index\n", **pages}.items():
        path = source / (name if "." in name else f"{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf8")
    warnings = StringIO()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            str(source),
            None,
            str(folder / "out"),
            str(folder / "doctrees"),
            "html",
            SETTINGS,
            StringIO(),
            warnings,
        )
        app.build()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", warnings.getvalue())
    return folder / "out", "\n".join(
        line for line in plain.splitlines() if "isn't included in any toctree" not in line
    )


QUESTION = """# Page
:::{question} Which term of $a + b$ **doubles**?
:id: kv-batch
- [ ] The weights. || Read once, `B` or not.
- [x] The cache, $B$. || Each sequence
      brings its own.
:::
"""


def test_a_question_is_a_fieldset_whose_choices_are_labelled_and_carry_their_reasons(
    tmp_path: Path,
) -> None:
    out, warnings = make_book(tmp_path, {"page": QUESTION})
    html = (out / "page.html").read_text("utf8")
    assert warnings == ""
    assert html.count('type="radio"') == 2
    assert "<fieldset>" in html
    assert re.search(r"<legend>.*<strong>doubles</strong>", html)
    for number, verdict in ((1, "No."), (2, "Right.")):
        assert f'<input type="radio" id="q-kv-batch-{number}"' in html
        assert f'<label for="q-kv-batch-{number}">' in html
        choice = html.split(f'id="q-kv-batch-{number}"')[1].split("</details>")[0]
        assert f"<strong>{verdict}</strong>" in choice
    assert "brings its own" in html.split('id="q-kv-batch-2"')[1]
    assert 'aria-live="polite"' in html


def test_a_question_with_two_right_choices_has_boxes_to_tick(tmp_path: Path) -> None:
    out, warnings = make_book(tmp_path, {"page": QUESTION.replace("[ ]", "[x]")})
    assert warnings == ""
    assert (out / "page.html").read_text("utf8").count('type="checkbox"') == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[x]", "[ ]"), "no choice is marked correct"),
        ((" || Read once, `B` or not.", ""), "choice 1 has no reason"),
        ((":id: kv-batch\n", ""), "needs an `:id:`"),
        (("The weights. ||", "||"), "choice 1 is empty"),
    ],
)
def test_a_question_that_cannot_teach_is_a_warning(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    assert complaint in make_book(tmp_path, {"page": QUESTION.replace(*change)})[1]


def test_an_id_used_on_two_pages_is_a_warning_that_names_the_other(tmp_path: Path) -> None:
    warnings = make_book(tmp_path, {"page": QUESTION, "second": QUESTION})[1]
    assert warnings.count("the id 'kv-batch' is used on") == 1


LEDGER = '# Ledger\n\n<table><tr id="claim-002-kv"><td>row</td></tr></table>\n'


def test_the_sources_say_links_to_the_ledgers_row(tmp_path: Path) -> None:
    page = "# Page\n:::{sources-say} 100 kB\n:claim: 002-kv\nNo.\n:::\n"
    out, warnings = make_book(tmp_path, {"book/page": page, "book/errata": LEDGER})
    assert warnings == ""
    html = (out / "book" / "page.html").read_text("utf8")
    assert 'href="errata.html#claim-002-kv"' in html
    assert "The sources say: 100 kB" in html


def test_a_claim_that_the_ledger_does_not_have_is_a_warning(tmp_path: Path) -> None:
    page = "# Page\n:::{sources-say}\n:claim: 002-k\nNo.\n:::\n"
    assert (
        "the ledger has no claim '002-k'"
        in make_book(tmp_path, {"book/page": page, "book/errata": LEDGER})[1]
    )


CHAPTER = "# Page\n:::{chapter}\n:sittings: 35, 40\n:needs: 01_first\n- count bytes;\n:::\n"


def test_the_head_of_a_chapter_adds_its_sittings_and_links_what_it_needs(tmp_path: Path) -> None:
    out, warnings = make_book(tmp_path, {"book/02_second": CHAPTER, "book/01_first": "# First\n"})
    html = (out / "book" / "02_second.html").read_text("utf8")
    assert warnings == ""
    assert "75 minutes" in html
    assert 'href="01_first.html"' in html
    assert "count bytes" in html


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("35, 40", "35, 50"), "a sitting of 50 minutes is longer than 45"),
        (("01_first", "01_fist"), "there is no page book/01_fist"),
        (("35, 40", "half an hour"), "sittings are minutes separated by commas"),
    ],
)
def test_a_head_that_promises_too_much_is_a_warning(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    pages = {"book/02_second": CHAPTER.replace(*change), "book/01_first": "# First\n"}
    assert complaint in make_book(tmp_path, pages)[1]


def test_a_page_with_two_titles_is_a_warning(tmp_path: Path) -> None:
    warnings = make_book(
        tmp_path, {"page": "# One\n\n## Section\n\n# Two\n", "other": "# One\n\n## Section\n"}
    )[1]
    assert warnings.count("a page has one title") == 1
    assert "page.md: WARNING" in warnings


def test_the_sittings_of_a_notebook_become_sections_of_its_one_title(tmp_path: Path) -> None:
    notebook = "# Exercises\n\nIntro.\n\n# Sitting 1\n\n## First\n\n# Sitting 2\n\n## Second\n"
    out, warnings = make_book(tmp_path, {"exercises/03_kv_cache": notebook})
    html = (out / "exercises" / "03_kv_cache.html").read_text("utf8")
    assert warnings == ""
    headings = re.findall(r"<h(\d)>([^<]*)<a class=\"headerlink", html)
    assert headings == [
        ("1", "Exercises"),
        ("2", "Sitting 1"),
        ("3", "First"),
        ("2", "Sitting 2"),
        ("3", "Second"),
    ]


def test_the_table_of_exercises_lists_every_exercise_of_the_registry(tmp_path: Path) -> None:
    from twophase.checks import registry

    out, warnings = make_book(tmp_path, {"page": "# Page\n:::{exercises} kv_cache\n:::\n"})
    html = (out / "page.html").read_text("utf8")
    exercises = registry.load_topic("kv_cache")
    assert warnings == ""
    assert exercises
    for exercise in exercises:
        row = html.split(exercise.id)[0].rpartition("<tr")[2]
        assert f"<p>{exercise.minutes} min</p>" in row
        assert f"<p>{exercise.points}</p>" in row
        assert f"<p>{exercise.kind}</p>" in row


def test_a_sittings_table_lists_its_exercises_under_their_numbers_in_the_notebook(
    tmp_path: Path,
) -> None:
    from twophase.checks import registry

    ids = registry.ids("kv_cache")
    slugs = [ids[i].partition("-")[2] for i in (3, 1)]
    page = f"# Page\n:::{{exercises}} kv_cache\n:only: {', '.join(slugs)}\n:::\n"
    out, warnings = make_book(tmp_path, {"page": page})
    rows = re.findall(r"<tr.*?</tr>", (out / "page.html").read_text("utf8"), re.S)[1:]
    assert warnings == ""
    assert [re.findall(r"<p>(.*?)</p>", row)[0] for row in rows] == ["4", "2"]
    assert all(ids[i] in row for i, row in zip((3, 1), rows, strict=True))


def test_an_exercise_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    page = "# Page\n:::{exercises} kv_cache\n:only: kv_bites\n:::\n"
    assert "there is no 'kv_cache-kv_bites'" in make_book(tmp_path, {"page": page})[1]


def test_a_topic_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    assert (
        "no topic 'kv_cash'"
        in make_book(tmp_path, {"page": "# Page\n:::{exercises} kv_cash\n:::\n"})[1]
    )


def test_the_kill_matrix_lists_every_misconception(tmp_path: Path) -> None:
    from twophase.checks import registry

    out, warnings = make_book(tmp_path, {"page": "# Page\n:::{kill-matrix}\n:::\n"})
    page = (out / "page.html").read_text("utf8")
    rows = [re.findall(r"<td\b[^>]*>(.*?)</td>", row) for row in page.split("<tr ")]
    shown = [unescape(re.sub("<[^>]*>", "", row[0])) for row in rows if row]
    known = [
        name
        for topic in registry.topics()
        for exercise in registry.load_topic(topic)
        for name in (exercise.id, *(m.slug for m in exercise.misconceptions))
    ]
    assert warnings == ""
    assert len(known) > 5
    assert shown == known
    assert "`" not in re.sub("<[^>]*>", "", page)  # code is code
    # a name goes on in the next line after an underscore only
    assert "<p>attention_<wbr>left_<wbr>out</p>" in re.sub("</?span[^>]*>", "", page)
    # a word of code after a sign
    assert ">F.<wbr>scaled_<wbr>dot_<wbr>product_<wbr>attention" in re.sub(
        "</?span[^>]*>", "", page
    )


def picture_cell(alt: str | None) -> str:
    """A notebook with one stored picture, a single pixel."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    metadata = {"mystnb": {"image": {"alt": alt}}} if alt else {}
    output = {
        "output_type": "display_data",
        "data": {"image/png": pixel, "text/plain": "<Figure>"},
        "metadata": {},
    }
    cell = {
        "cell_type": "code",
        "id": "a",
        "execution_count": 1,
        "metadata": metadata,
        "source": "draw()",
        "outputs": [output],
    }
    title = {"cell_type": "markdown", "id": "b", "metadata": {}, "source": "# Page"}
    return json.dumps(
        {
            "cells": [title, cell],
            "metadata": {"language_info": {"name": "python", "pygments_lexer": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def test_a_cells_alt_text_reaches_the_page(tmp_path: Path) -> None:
    out, warnings = make_book(tmp_path, {"page.ipynb": picture_cell("a line that rises")})
    assert warnings == ""
    assert 'alt="a line that rises"' in (out / "page.html").read_text("utf8")


def test_a_picture_without_alt_text_is_a_warning(tmp_path: Path) -> None:
    assert (
        "this picture has no alt text" in make_book(tmp_path, {"page.ipynb": picture_cell(None)})[1]
    )


def test_a_traceback_among_a_cells_outputs_is_a_warning(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "ValueError", "evalue": "x not in list",
             "traceback": ["Traceback", "ValueError: x not in list"]}  # fmt: skip
    cell = {"cell_type": "code", "source": "figure", "metadata": {}, "execution_count": 1,
            "outputs": [error]}  # fmt: skip
    title = {"cell_type": "markdown", "source": "# Page", "metadata": {}}
    book = {"cells": [title, cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    _, warnings = make_book(tmp_path, {"page.ipynb": json.dumps(book)})
    assert "a cell's output is a traceback: ValueError: x not in list" in warnings


def test_a_term_carries_its_definition_and_only_its_own(tmp_path: Path) -> None:
    glossary = (
        "# Glossary\n:::{glossary}\nKV cache\n  Keys and values, kept.\n\nbatch\n  Sequences in a"
        " pass.\n:::\n"
    )
    page = "# Page\nThe {term}`KV cache` of a {term}`batch`.\n"
    out, warnings = make_book(tmp_path, {"glossary": glossary, "page": page})
    html = (out / "page.html").read_text("utf8")
    assert warnings == ""
    assert re.findall(r'title="([^"]*)"><span class="xref std std-term">([^<]*)<', html) == [
        ("Keys and values, kept.", "KV cache"),
        ("Sequences in a pass.", "batch"),
    ]


PROSE = """# Page
First words of the page, $\\frac{a}{b}$ of them.
## One
Said *here*, and `code` too.

- an item
```python
never_shown = 1
```
### Below
Deeper.
## None

| a | b |
|---|---|
| x | y |
"""


def test_search_has_the_prose_of_each_section_under_its_id(tmp_path: Path) -> None:
    out, warnings = make_book(tmp_path, {"page": PROSE})
    assert not warnings
    script = (out / "_static" / "search_texts.js").read_text("utf8")
    texts = json.loads(script.removeprefix("window.twophaseTexts = ").rstrip().rstrip(";"))
    assert texts["page"][:3] == [
        ["page", "Page", "First words of the page, a/b of them."],
        ["one", "One", "Said here, and code too. an item"],
        ["below", "Below", "Deeper."],
    ]
    assert "never_shown" not in script


def test_only_the_search_page_loads_what_is_searched(tmp_path: Path) -> None:
    out, _ = make_book(tmp_path, {"page": "# Page\nWords.\n"})
    loads = {name: "search_texts.js" in (out / name).read_text("utf8")
             for name in ("page.html", "search.html")}  # fmt: skip
    assert loads == {"page.html": False, "search.html": True}


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\frac{a}{b} \cdot c", "a/b · c"),
        (r"W_{\mathrm{hbm}}", "W_hbm"),
        (r"t_\text{step} \, B", "t_step B"),
    ],
)
def test_a_formula_in_a_passage_is_what_a_person_would_type(tex: str, said: str) -> None:
    from book_search import formula

    assert formula(tex) == said


def test_a_named_figure_that_no_sentence_speaks_of_is_a_warning(tmp_path: Path) -> None:
    shown = "# Page\n\n```{figure} a.svg\n:name: fig-a\n:alt: A bar.\nA caption.\n```\n"
    drawing = {"a.svg": "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"}
    said = "no sentence of this page speaks of the figure fig-a"
    assert said in make_book(tmp_path / "one", {"page": shown, **drawing})[1]
    spoken = shown + "\n{numref}`Figure <fig-a>` has a bar.\n"
    assert said not in make_book(tmp_path / "two", {"page": spoken, **drawing})[1]


def test_a_caption_stands_above_the_box_in_which_its_table_scrolls(tmp_path: Path) -> None:
    rows = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    named = f":::{{table}} Two *numbers*\n:name: two-numbers\n{rows}:::\n"
    raw = "<table class='mine'><caption>Raw</caption><tbody><tr><td>1</td></tr></tbody></table>\n"
    out, warnings = make_book(tmp_path, {"page": f"# Page\n\n{rows}\n{named}\n{raw}"})
    html = (out / "page.html").read_text("utf8")
    assert warnings == ""
    assert "<caption" not in html
    assert html.count('<div class="tp-scroll"><table') == html.count("</table></div></div>") == 3
    above = re.findall(
        r'<p class="tp-table-caption" id="(.*?)">(.*?)</p>\s*<div class="tp-scroll"><table(.*?)>',
        html,
        re.DOTALL,
    )
    assert [re.sub("<[^>]*>|¶", "", said).strip() for _, said, _ in above] == [
        "Two numbers",
        "Raw",
    ]
    assert all(f'aria-labelledby="{name}"' in head for name, _, head in above)


def test_on_a_phone_a_caption_says_above_and_below_of_panels(tmp_path: Path) -> None:
    shown = "```{figure} a.svg\n:alt: Two bars.\nLeft: a bar. One more (right), right of it.\n```\n"
    drawing = {"a.svg": "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"}
    out, warnings = make_book(tmp_path, {"page": f"# Page\n\n{shown}", **drawing})
    html = (out / "page.html").read_text("utf8")
    assert warnings == ""
    for wide, narrow in (("Left", "Above"), ("right", "below")):
        words = (
            f'<span class="tp-wide-word">{wide}</span><span class="tp-narrow-word">{narrow}</span>'
        )
        assert html.count(words) == 1
    assert ", right of it." in html


def test_short_words_of_code_are_whole_and_long_ones_break(tmp_path: Path) -> None:
    long = "a_name_of_more_than_twenty_four_letters"
    folder, warnings = make_book(
        tmp_path, {"words": f"# Words\n\nThe `n_prompt`, (`n % K`), `{long}` and\n(`{long}`),\n"}
    )
    page = (folder / "words.html").read_text("utf8")
    marked = re.findall(r'<code class="[^"]*tp-short[^"]*"[^>]*>(.*?)</code>', page)
    assert [re.sub(r"<[^>]*>", "", words) for words in marked] == ["n_prompt", "n % K"]
    assert long in page
    assert warnings == ""
    glued = re.findall('<span class="tp-glued">(.*?)</span>\n', page.replace("</p>", "\n"))
    assert [re.sub(r"<[^>]*>", "", words) for words in glued] == [f"({long}),"]


def test_a_long_name_in_a_title_breaks_after_a_sign_and_an_option_does_not() -> None:
    from book_words import broken_after_signs

    box = '<p class="admonition-title">Says: “accepted.append(sample(adjusted_probs))” <b>if_so</b></p>'
    assert broken_after_signs(box) == box.replace(
        "accepted.append(sample(adjusted_probs))",
        "accepted.<wbr>append(<wbr>sample(<wbr>adjusted_<wbr>probs))",
    )
    caption = "<caption>Two orders (python -m twophase.models.train --seeds 2) 1e-5</caption>"
    assert broken_after_signs(caption) == (
        '<caption>Two orders (python <span class="tp-option">-m</span>'
        " twophase.<wbr>models.<wbr>train"
        ' <span class="tp-option">--seeds</span> 2) 1e-5</caption>'
    )
    other = "<p>accepted.append(sample(adjusted_probs)) --seeds</p>"
    assert broken_after_signs(other) == other
