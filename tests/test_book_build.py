"""The build script knows what has changed; no page asks another host."""

import importlib.util
import re
import sys
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_api  # noqa: E402
import book_icons  # noqa: E402
import book_numbers  # noqa: E402
import book_offline  # noqa: E402
import book_search  # noqa: E402
import book_tables  # noqa: E402
from docutils import nodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.util.docutils import docutils_namespace, patch_docutils  # noqa: E402

spec = importlib.util.spec_from_file_location("book_script", ROOT / "tools" / "book.py")
assert spec is not None
assert spec.loader is not None
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def test_the_fingerprint_changes_with_content_and_names_and_with_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text("x = 1")
    first = script.fingerprint(["lib"], tmp_path)
    (tmp_path / "lib" / "__pycache__").mkdir()
    (tmp_path / "lib" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert script.fingerprint(["lib"], tmp_path) == first
    (tmp_path / "lib" / "a.py").write_text("x = 2")
    second = script.fingerprint(["lib"], tmp_path)
    assert second != first
    (tmp_path / "lib" / "a.py").rename(tmp_path / "lib" / "b.py")
    assert script.fingerprint(["lib"], tmp_path) not in (first, second)


@pytest.mark.parametrize(
    ("tag", "asks"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', True),
        ('<script src="//unpkg.com/x.js"></script>', True),
        ('<link rel="stylesheet" href="https://fonts.example/a.css">', True),
        ('<link href="https://fonts.example" rel="preconnect">', True),
        ('<img alt="" src="http://example.org/a.png">', True),
        ('<a href="https://example.org">elsewhere</a>', False),
        ('<link rel="canonical" href="https://example.org/page">', False),
        ('<script src="../_static/house.js"></script>', False),
    ],
)
def test_only_what_a_browser_would_fetch_counts_as_an_outside_request(tag: str, asks: bool) -> None:
    assert bool(book_offline.outside_requests(f"<p>{tag}</p>")) is asks


def test_our_scripts_and_styles_name_no_host() -> None:
    for path in (ROOT / "book" / "_static").iterdir():
        if path.suffix not in (".css", ".js", ".svg"):
            continue
        text = path.read_text("utf8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\((?!math\.woff2\))|@import", text), path


def test_every_page_of_the_contents_exists_and_every_page_is_in_the_contents() -> None:
    listed = set(
        re.findall(
            r"file: ([\w/]+)",
            re.sub(r"^#.*$", "", (ROOT / "_toc.yml").read_text("utf8"), flags=re.M),
        )
    )
    listed.add(yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))["root"])
    pages = {
        p.relative_to(ROOT).with_suffix("").as_posix()
        for p in (ROOT / "book").rglob("*.md")
        if "_ext" not in p.parts
    }
    pages |= {
        p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "exercises").glob("*.ipynb")
    }
    assert listed == pages


def test_the_first_picture_has_a_form_for_a_phone_whose_words_can_be_read() -> None:
    """390 px of a phone leave 358; a form that is wider is cut or shrinks its words."""
    page = (ROOT / "book" / "index.md").read_text("utf8")
    forms = re.findall(
        r'<svg class="tp-phases (tp-\w+)" viewBox="0 0 (\d+) \d+".*?</svg>', page, re.S
    )
    assert [(name, int(width) <= 358) for name, width in forms] == [
        ("tp-wide", False),
        ("tp-narrow", True),
    ]
    narrow = page[page.index("tp-narrow") :]
    assert min(int(size) for size in re.findall(r'font-size="(\d+)"', narrow)) >= 12
    svgs = re.findall(r"<svg class=.tp-phases.*?</svg>", page, re.S)
    texts = [" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)) for svg in svgs]
    words = [sorted(re.findall(r"[^\W\d_]+", text)) for text in texts]
    assert words[0] == words[1]  # both say the same
    assert "min-width" not in (ROOT / "book" / "_static" / "house.css").read_text().partition(
        ".tp-phases {")[2].partition("}")[0]  # fmt: skip


@pytest.mark.parametrize("page", sorted(ROOT.glob("book/*.md")), ids=lambda page: page.stem)
def test_a_command_on_a_page_fits_80_columns_and_is_one_command(page: Path) -> None:
    for block in re.findall(r"^```\n(.*?)^```$", page.read_text("utf8"), re.M | re.S):
        lines = block.splitlines()
        for line, below in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith(("twophase ", "make ", "nbgrader ", "pip ")):
                assert len(line) <= 80, line
                assert line.endswith("\\") == below.startswith("    "), line


def test_the_self_test_has_ten_questions() -> None:
    assert (ROOT / "book" / "index.md").read_text("utf8").count(":::{question}") == 10


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("a shape [B, T] and 2 * B", r"a shape [B, T] and 2 \* B"),
        ("`B` sequences", "``B`` sequences"),
        ("``B`` sequences", "``B`` sequences"),
        ("x_ and |y|", r"x\_ and \|y\|"),
        ("the `kv`s", r"the ``kv``\ s"),
    ],
)
def test_docstrings_are_plain_text(line: str, wanted: str) -> None:
    assert book_api.plain(line) == wanted


def test_indented_lines_of_a_docstring_stand_as_they_are() -> None:
    lines = ["Reads.", "", "    a = b * c", "", "After."]
    book_api.plain_docstring(None, "function", "f", None, None, lines)  # type: ignore[arg-type]
    assert "    a = b * c" in lines
    assert "::" in lines[: lines.index("    a = b * c")]
    assert lines.index("After.") > lines.index("    a = b * c")


def test_the_reference_leaves_out_the_exercises() -> None:
    modules = book_api.public_modules("twophase.checks")
    assert "twophase.checks.judge" in modules
    assert "twophase.checks" not in modules  # it says nothing of itself
    assert not [name for name in modules if name.startswith("twophase.checks.kv_cache")]


def test_of_a_script_with_all_icons_the_pages_keep_their_own() -> None:
    script = (
        '{bars:[1,2,[],"f0","M0"]} d("fab",p) {bars:[3,4,["x"],"f1","M1"]} d("far",p)'
        ' {bars:[5,6,[7,"y"],"f2","M2"],"angle-up":[8,9,[],"f3","M3"]} d("fas",p)'
    )
    page = '<i class="fa-solid fa-bars fa-lg"></i><span class="far fa-bars"></span><p class="fa-x">'
    found = book_icons.used([page])
    assert found == {"fa-solid fa-bars", "far fa-bars", book_icons.BY_THE_THEME}
    assert book_icons.drawing(script, "fa-solid fa-bars") == (5, 6, "M2")
    assert book_icons.drawing(script, "far fa-bars") == (3, 4, "M1")
    assert book_icons.drawing(script, "fas fa-angle-up") == (8, 9, "M3")
    assert book_icons.drawing(script, "fas fa-unknown") is None


def test_only_the_page_of_the_search_loads_the_index_of_the_book() -> None:
    kept = '<script src="../_static/doctools.js?v=9"></script>'
    of_the_theme = "".join(
        f'<script src="../{name}.js"></script>\n    '
        for name in ("_static/searchtools", "_static/language_data", "searchindex")
    )
    assert book_search.without_index(f"{kept}\n{of_the_theme}<p>") == f"{kept}\n<p>"


def test_a_search_finds_no_chapter_by_what_stands_at_the_head_of_each() -> None:
    section = nodes.section(ids=["one"])
    able = nodes.bullet_list("", nodes.list_item("", nodes.paragraph(text="count pages")))
    head = nodes.container("", nodes.paragraph(text="This page"), able, classes=["tp-chapter"])
    section += [nodes.title(text="One"), head, nodes.paragraph(text="A cache.")]
    page = nodes.document("", "")
    page += section
    assert book_search.passages(page) == [("one", "One", "count pages A cache.")]


def test_on_a_phone_a_sentence_in_a_table_is_not_squeezed_to_a_word_a_line() -> None:
    cells = "<td>4.1 ms</td><td>the states of the <b>pass</b> are kept</td>"
    page = book_tables.in_boxes(f"<table><tr>{cells}</tr></table>")
    assert "<td>4.1 ms</td>" in page
    assert '<td class="tp-words">the states' in page
    sheet = (ROOT / "book" / "_static" / "house.css").read_text("utf8")
    assert re.search(r"max-width: 576px\) \{ article td\.tp-words \{ min-width", sheet)


def test_a_chapter_is_numbered_by_its_files_name_wherever_it_stands() -> None:
    numbers = {"": (8,), "#queues": (8, 2), "#none": ()}
    assert [book_numbers.renumbered(n, 10) for n in numbers.values()] == [(10,), (10, 2), ()]
    found = book_numbers.NAME.match("exercises/10_sharding")
    assert found is not None
    assert found[1] == "10"
    assert book_numbers.NAME.match("book/models") is None
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    core = [chapter["file"] for chapter in toc["parts"][0]["chapters"]]
    assert core == sorted(f"book/{path.stem}" for path in (ROOT / "book").glob("[0-9][0-9]_*.md"))


def test_title_contents_figures_and_exercises_of_a_page_all_have_its_files_number(
    tmp_path: Path,
) -> None:
    pages = {
        "index": "# Book\n",
        "book/01_first": "# First\n",
        "exercises/01_first": "# Exercises of the first\n",
        "book/10_tenth": "# Tenth\n\n{numref}`dot`\n\n"
        "```{figure} dot.png\n:name: dot\nA dot.\n```\n",
        "exercises/10_tenth": "# Exercises of the tenth\n",
        "book/last": "# Last\n",
    }
    chapters = [
        {"file": f"book/{name}", "sections": [{"file": f"exercises/{name}"}]}
        for name in ("01_first", "10_tenth")
    ]
    parts = [{"numbered": 1, "chapters": chapters}, {"chapters": [{"file": "book/last"}]}]
    contents = {"format": "jb-book", "root": "index", "parts": parts}
    for name, text in pages.items():
        path = tmp_path / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf8")
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(contents), "utf8")
    (tmp_path / "book" / "dot.png").write_bytes(b"")
    settings = {
        # in the order in which jupyter-book loads them
        "extensions": [
            "myst_nb",
            "sphinx_external_toc",
            "book_numbers",
            "sphinx_multitoc_numbering",
        ],
        "external_toc_path": "_toc.yml",
        "numfig": True,
        "nb_execution_mode": "off",
    }
    with patch_docutils(), docutils_namespace():
        folders = (str(tmp_path), None, str(tmp_path / "out"), str(tmp_path / "trees"))
        app = Sphinx(*folders, "html", settings, StringIO(), StringIO())
        app.build()
    page = (tmp_path / "out" / "book" / "10_tenth.html").read_text("utf8")
    assert re.search(r"<h1>.*>10\. </span>Tenth", page)
    assert set(re.findall(r"Fig\. [\d.]+\d", page)) == {"Fig. 10.1"}
    numbers = {doc: title.get("secnumber") for doc, title in app.env.titles.items()}
    assert numbers["book/01_first"] == [1]
    assert numbers["book/10_tenth"] == [10]
    assert numbers["book/last"] is None
    assert numbers["exercises/01_first"] is numbers["exercises/10_tenth"] is None
    assert app.env.toc_secnumbers["book/10_tenth"][""] == (10,)
    at_the_left = app.env.tocs["book/10_tenth"].findall(nodes.reference)
    assert [line.get("secnumber") for line in at_the_left] == [[10]]


PERCENT = re.compile(r"(?<=[0-9}]) %(?=$|[\"'`.,;:)\]}<|\\]| [a-zA-Z(–])", re.M)


def test_a_percent_sign_stands_at_its_number_everywhere() -> None:
    assert PERCENT.search("5 % of")
    places = [*(ROOT / "book").rglob("*.md"), *(ROOT / "exercises").glob("*.ipynb")]
    found = [f"{p.name}: {m[0]}" for p in places for m in PERCENT.finditer(p.read_text("utf8"))]
    assert not found, "write 5%, not 5 %"


MESH = re.compile(r"(?<![\w.×])[1-9]\d*(?:x| x |×)\d+(?![\w.])")


def test_a_mesh_has_one_sign_everywhere() -> None:
    for other in ("4x4 chips", "4 x 4", "(2×2)"):
        assert MESH.search(other)
    claims = ROOT / "lib" / "twophase" / "errata" / "claims"
    places = [*(ROOT / "book").rglob("*.md"), *(ROOT / "exercises").glob("*.ipynb")]
    places += claims.glob("*.yml")
    found = [f"{p.name}: {m[0]}" for p in places for m in MESH.finditer(p.read_text("utf8"))]
    assert not found, "write 4 × 4"


def test_no_change_is_printed_as_minus_zero() -> None:
    """The z of a format rounds −0.0001 to +0.000."""
    signed = re.compile(r":\+\.\d[f%]")
    assert f"{-0.0001:+z.3f}" == "+0.000"
    found = [p.name for p in (ROOT / "book").glob("*.md") if signed.search(p.read_text("utf8"))]
    assert not found, "write :+z.3f"


def test_a_reference_page_loses_boxes_and_not_a_letter() -> None:
    page = (
        '<dt class="sig"><span class="n"><span class="pre">a</span></span><span class="p">'
        '<span class="pre">:</span></span><span class="w"> </span><a href="#T"><span class="pre">T'
        '</span></a></dt> <code class="literal"><span class="pre">a</span>'
        ' <span class="pre">b</span>'
    )
    made = book_api.unboxed(page)
    assert made == (
        '<dt class="sig"><span class="n">a</span><span class="p">:</span> <a href="#T">T</a></dt>'
        ' <code class="literal">a b'
    )
    assert re.sub("<[^>]*>", "", made) == re.sub("<[^>]*>", "", page)


def test_the_name_of_a_module_goes_on_after_a_dot() -> None:
    heading = '<h2><code class="literal">twophase.theory.kv_cache</code></h2>'
    made = '<h2><code class="literal">twophase.<wbr>theory.<wbr>kv_cache</code></h2>'
    assert book_api.unboxed(heading) == made


def test_the_contents_of_a_reference_page_call_modules_by_their_own_names() -> None:
    entry = '<a class="reference internal nav-link" href="#module-twophase.lab.clock"><code>'
    page = f'{entry}<span class="pre">twophase.lab.clock</span></code></a>'
    assert book_api.unboxed(page) == f"{entry}clock</code></a>"


def test_code_that_goes_on_in_the_next_line_of_a_docstring_is_code() -> None:
    lines = ["Block `table[b, p //", "size]` of the *last* one, 2 * B, `x`."]
    book_api.plain_docstring(None, "", "", None, None, lines)  # type: ignore[arg-type]
    assert lines[0] == "Block ``table[b, p // size]`` of the *last* one, 2 \\* B, ``x``\\ ."
    apart = ["A stray ` here.", "", "`code` there."]
    book_api.plain_docstring(None, "", "", None, None, apart)  # type: ignore[arg-type]
    assert apart == ["A stray \\` here.", "", "``code`` there.", ""]


def test_a_protocol_and_an_enumeration_have_no_signature() -> None:
    class Rule(Protocol):
        """What may be asked of a rule."""

    def made(of: object) -> str | None:
        given = (None, "class", "", of, None, "(*args, **kwargs)", None)
        return book_api.readable_defaults(*given)[0]  # type: ignore[arg-type]

    assert made(Rule) == made(Enum("Status", "WAITING RUNNING")) == ""
    assert made(Path) == "(*args, **kwargs)"


def test_a_field_of_a_named_tuple_is_not_said_twice() -> None:
    class Point(NamedTuple):
        """A place."""

        x: int

        @property
        def far(self) -> bool:
            """Whether it is."""
            return self.x > 9

    def skipped(name: str) -> bool | None:
        return book_api.without_aliases(None, "class", name, vars(Point)[name], False, None)  # type: ignore[arg-type]

    assert skipped("x") is True
    assert skipped("far") is None


def test_a_default_that_is_a_nameless_function_is_dots() -> None:
    signature = "(then: Callable[[], None] = <function Comm.<lambda>>, n: int = 3)"
    made, _ = book_api.readable_defaults(None, "", "", None, None, signature, None)  # type: ignore[arg-type]
    assert made == "(then: Callable[[], None] = ..., n: int = 3)"


def test_a_default_that_is_a_path_does_not_say_whose_machine_built_the_page() -> None:
    signature = "(course: Path = PosixPath('/home/somebody/course'), n: str = '/usr/bin/x')"
    made, _ = book_api.readable_defaults(None, "", "", None, None, signature, None)  # type: ignore[arg-type]
    assert made == "(course: Path = ..., n: str = ...)"
