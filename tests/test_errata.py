"""The ledger: every row is computed, and what comes out must support the verdict that stands in
it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
import yaml

from twophase import errata
from twophase.errata import entry, ledger, parsing, rows, rules, witnesses

FINDINGS = errata.findings()
ROOT = Path(__file__).parents[1]


def rule_of(finding: errata.Finding) -> str:
    return finding.claim.id


@pytest.mark.parametrize("finding", FINDINGS, ids=rule_of)
def test_the_numbers_support_the_verdict(finding: errata.Finding) -> None:
    plain = finding.plain
    assumed = [outcome for outcome in finding.outcomes if outcome.assumption]
    match finding.claim.verdict:
        case "holds":
            assert plain is not None
            assert plain.agrees
        case "holds if":
            assert plain is not None
            assert not plain.agrees
            assert any(outcome.agrees for outcome in assumed)
        case "wrong" | "bug":
            assert plain is not None
            assert not any(outcome.agrees for outcome in finding.outcomes)
            assert (finding.claim.verdict == "bug") == (finding.claim.kind == "code")
        case "ambiguous":
            assert plain is None
            assert len({str(outcome.values) for outcome in assumed}) > 1
        case "not checked":
            assert not finding.outcomes
    assert finding.verdict == finding.claim.verdict


def claimed_otherwise(finding: errata.Finding) -> Iterator[errata.Claim]:
    """The claim with another number printed: three times and a third of it, where it agreed (of a
    range, one beyond it); what was recomputed, where it did not."""
    claim, plain = finding.claim, finding.plain
    assert plain is not None
    if claim.formula is not None and plain.agrees:
        for factor in (3, 1 / 3):
            one, many = f"{factor} * ({claim.formula})", f"[{factor} * v for v in {claim.formula}]"
            yield replace(claim, formula=many if claim.formula.startswith("[") else one)
    elif claim.formula is not None:
        yield replace(claim, formula=claim.expression)
    elif claim.rule == "within":
        low, high = claim.stated.value
        low, high = (high * high / low, 3 * high * high / low) if plain.agrees else (1e-300, 1e300)
        yield replace(claim, stated=replace(claim.stated, value=(low, high)))
    elif plain.agrees:
        for factor in (3, 1 / 3):
            yield replace(claim, stated=replace(claim.stated, value=factor * claim.stated.value))
    else:
        for inputs, value in zip(claim.cases, plain.values, strict=True):
            shown = replace(claim.stated, value=value, text=repr(float(value)))
            yield replace(claim, cases=(inputs,), stated=shown)


@pytest.mark.parametrize("finding", FINDINGS, ids=rule_of)
def test_every_row_would_come_out_otherwise_if_the_claim_or_the_world_were_otherwise(
    finding: errata.Finding,
) -> None:
    claim, plain = finding.claim, finding.plain
    if claim.kind in rows.UNCHECKED:
        assert claim.expression is None
    elif plain is None:
        assert not rules.same([outcome.values for outcome in finding.outcomes])
    elif claim.otherwise is not None:
        assert ledger.outcome_of(claim, claim.otherwise).agrees is not plain.agrees
    elif isinstance(claim.stated.value, bool):
        assert any(outcome.agrees is not plain.agrees for outcome in finding.outcomes[1:])
    else:
        other = list(claimed_otherwise(finding))
        assert other
        for changed in other:
            assert ledger.outcome_of(changed).agrees is not plain.agrees


def test_no_reading_replaces_a_number_that_the_text_prints() -> None:
    for finding in FINDINGS:
        for outcome in finding.outcomes:
            assert not finding.claim.printed & set(outcome.changes), finding.claim.id


def test_a_claim_of_several_texts_is_computed_once_and_has_one_verdict() -> None:
    by_id = {finding.claim.id: finding for finding in FINDINGS}
    twins = [finding for finding in FINDINGS if finding.claim.same_as]
    assert len(twins) >= 10
    for finding in twins:
        original = by_id[finding.claim.same_as]
        assert original.claim.source != finding.claim.source
        assert (finding.verdict, finding.outcomes) == (original.verdict, original.outcomes)


def test_what_is_not_right_says_by_how_much_and_what_is_right_does_not() -> None:
    for finding in FINDINGS:
        off = finding.verdict in ("holds if", "wrong", "bug")
        assert bool(finding.off) == off, finding.claim.id
        assert (finding.severity in [name for _, name in ledger.SEVERITIES]) == off
        assert not re.match(r"0 |1 times|nan|inf", finding.off), (finding.claim.id, finding.off)


@pytest.mark.parametrize(
    ("computed", "off", "severity"),
    [(4.04, "1%", "slight"), (4.3, "7.5%", "notable"), (3, "1.33 times", "notable"),
     (8, "2 times", "grave"), (2, "2 times", "grave"), (-1, "5 bytes", "notable")],
)  # fmt: skip
def test_how_far_off_a_row_is_follows_from_its_numbers(
    computed: float, off: str, severity: str
) -> None:
    row = good_row() | {"expression": str(computed), "rule": "exactly", "verdict": "wrong"}
    finding = errata.judge(parsing.parse_claim(row, "toy"))
    assert (finding.off, finding.severity) == (off, severity)


@pytest.mark.parametrize("finding", FINDINGS, ids=rule_of)
def test_a_row_says_what_it_needs_to(finding: errata.Finding) -> None:
    claim = finding.claim
    assert finding.correction.endswith((".", ")")), "a correction is a sentence"
    assert "{" not in finding.correction
    assert parsing.quoted_words(claim.claim) <= parsing.MAX_WORDS
    assert any(case for case in claim.cases) or claim.let, "a row names its inputs"
    for case in claim.cases:
        for value in case.values():
            assert isinstance(value, (int, float)) or parsing.amount(value)[1], (
                f"{value} has no unit"
            )


def test_ids_are_unique_over_all_sources_and_name_their_source() -> None:
    ids = [finding.claim.id for finding in FINDINGS]
    assert len(ids) == len(set(ids))
    prefixes = {
        source.key: {claim.id.split("-")[0] for claim in source.claims} for source in errata.load()
    }
    assert all(len(found) == 1 for found in prefixes.values())
    assert len(set.union(*prefixes.values())) == len(parsing.FILES)


def test_every_source_and_every_chapter_has_claims() -> None:
    assert all(len(source.claims) >= 20 for source in errata.load())
    assert {finding.claim.topic for finding in FINDINGS} == set(rows.TOPICS)


def test_a_doctored_verdict_is_found_out() -> None:
    """Whatever verdict a row claims, the one derived from its numbers stays."""
    for finding in FINDINGS[::5]:
        for other in set(rows.VERDICTS) - {finding.claim.verdict}:
            assert errata.judge(replace(finding.claim, verdict=other)).verdict == finding.verdict


def test_a_stated_value_off_by_a_tenth_no_longer_holds() -> None:
    """The tolerance of the rows that hold by number is not so wide that anything passes."""
    checked = 0
    for finding in FINDINGS:
        claim, plain = finding.claim, finding.plain
        if (
            finding.verdict != "holds"
            or plain is None
            or claim.rule in ("truth", "within")
            or claim.formula
        ):
            continue
        if not isinstance(claim.stated.value, (int, float)) or (
            claim.rule == "digits" and claim.stated.value < 5
        ):
            continue  # one printed digit, such as 1 GB, leaves more room than a tenth
        off = [value * 1.1 for value in plain.values]
        assert not rules.agrees(off[0], claim.stated, claim.rule), claim.id
        checked += 1
    assert checked > 25


@pytest.mark.parametrize(
    ("computed", "stated", "rule", "expected"),
    [
        (26.87, "26.8 GB", "digits", True),  # cut, 0.3%
        (26.86, "26.9 GB", "digits", True),  # rounded
        (2.57, "2.5 ms", "digits", False),  # cut, but 2.7%
        (8.02, "8.08 ms", "digits", False),
        (14.34, "14.4 GB", "digits", False),
        (243.2, "240 tokens", "2 digits", True),
        (243.2, "240 tokens", "3 digits", False),
        (1945.7, "1920 tokens", "3 digits", False),
        (33.55, "33 MB", "about", True),
        (8.59, "8 GB", "about", False),
        (1.83, "2 times", "about 10 %", True),
        ([16.2, 16.9], "16 to 17 GB", "within", True),
        ([16.2, 17.9], "16 to 17 GB", "within", False),
        (7, "7 sequences", "exactly", True),
        (6, "7 sequences", "exactly", False),
        (-2.0, "2 dB", "exactly", False),
        (True, True, "truth", True),
        (False, True, "truth", False),
    ],
)
def test_agreement_follows_the_printed_digits(
    computed: object, stated: object, rule: str, expected: bool
) -> None:
    assert rules.agrees(computed, rules.parse_stated(stated), rule) is expected


def good_row() -> dict[str, object]:
    return {
        "id": "toy-row",
        "where": "here",
        "topic": "kv_cache",
        "claim": "“two”",
        "inputs": {"B": "2 sequences"},
        "stated": "4 bytes",
        "expression": "2 * B",
        "verdict": "holds",
        "correction": "It is {value}.",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "maybe"}, "the verdict is one of"),
        ({"topic": "cooking"}, "the topic one of"),
        ({"id": "Toy"}, "lower-case words"),
        ({"rule": "roughly"}, "unknown rule"),
        ({"claim": "“" + "word " * 26 + "”"}, "at most 25 words"),
        ({"inputs": {"B": "two"}}, "a number and its unit"),
        ({"stated": "a lot"}, "starts with a number"),
        ({"correction": ""}, r"missing \['correction'\]"),
        ({"colour": "red"}, r"unknown \['colour'\]"),
        ({"expression": None}, "needs two readings"),
        (
            {"readings": [{"assumption": "three of them", "inputs": {"B": "3 sequences"}}]},
            "replaces B, which the text prints",
        ),
        ({"chosen": {"B": "3 sequences"}}, "both printed and chosen"),
        ({"kind": "rumour"}, "the kind is one of"),
        ({"kind": "definition"}, "is not checked"),
        ({"kind": "looked up"}, "has a reference"),
        ({"kind": "code", "readings": [{"assumption": "a"}]}, "no readings"),
    ],
)
def test_a_bad_row_is_refused_with_one_sentence_that_names_it(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parsing.parse_claim(good_row() | change, "toy")
    assert "toy" in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_good_row_is_computed_and_its_correction_filled() -> None:
    finding = errata.judge(parsing.parse_claim(good_row(), "toy"))
    assert finding.verdict == "holds"
    assert finding.correction == "It is 4."


def test_a_row_whose_expression_fails_is_named() -> None:
    claim = parsing.parse_claim(good_row() | {"expression": "no_such_formula(B)"}, "toy")
    with pytest.raises(ValueError, match=r"toy, toy-row: NameError: .*no_such_formula"):
        errata.judge(claim)


def test_an_id_used_twice_in_a_file_is_refused() -> None:
    text = yaml.safe_dump({"title": "Toy", "claims": [good_row(), good_row()]})
    with pytest.raises(ValueError, match="ids used twice: toy-row"):
        parsing.parse_source(text, "toy")


def test_expressions_reach_no_builtin_function() -> None:
    claim = parsing.parse_claim(good_row() | {"expression": "open('/etc/passwd')"}, "toy")
    with pytest.raises(ValueError, match="NameError"):
        errata.judge(claim)


def test_most_rows_use_the_formulas_of_the_course_or_run_a_witness() -> None:
    names = "|".join(
        name
        for name in ledger.vocabulary()
        if name not in ledger.UNITS and name not in ledger.PLAIN
    )
    uses = re.compile(rf"\b({names})\b")
    using = [
        f
        for f in FINDINGS
        if any(
            uses.search(code)
            for code in (*(o.expression for o in f.outcomes), *f.claim.let.values())
        )
    ]
    assert len(using) > 0.75 * len(FINDINGS)


def test_loops_count_what_the_formulas_say() -> None:
    assert witnesses.matmul_flops_by_loop(2, 3, 4) == 48
    assert witnesses.mlp_flops_by_loop(1, 2, 3, 4, gated=False) == 4 * 2 * 12
    assert (
        witnesses.attention_flops_by_loop(1, 1, 1, 1, 1) == 4
    )  # a product and an add, for the score and the value
    assert witnesses.pairs_by_loop(1, 2) == 1 + 2 + 3
    assert witnesses.growth(lambda n: 5 * n**3, 7) == pytest.approx(3)


def test_the_snippet_loses_tokens_silently_one_by_one_and_raises_on_a_block() -> None:
    assert witnesses.tokens_lost_past_the_end(4, 4) == 0
    assert witnesses.tokens_lost_past_the_end(4, 7) == 3
    assert witnesses.a_block_past_the_end_raises()


def test_the_snippet_confuses_ragged_rows_layers_and_sequences() -> None:
    assert witnesses.attention_error_of_the_short_row(4, 4) == 0
    assert witnesses.attention_error_of_the_short_row(2, 4) > 0.1
    assert witnesses.length_after_one_token(3) == 3
    assert witnesses.first_key_of_the_second_sequence(False) == 101
    assert witnesses.first_key_of_the_second_sequence(True) == 1


def test_the_snippet_keeps_the_last_request_and_the_graph_of_every_step() -> None:
    assert witnesses.keys_of_the_request_before(3, new_object=False) == 3
    assert witnesses.keys_of_the_request_before(3, new_object=True) == 0
    assert witnesses.steps_kept_for_a_backward_pass(4, without_gradients=False) == 4
    assert witnesses.steps_kept_for_a_backward_pass(4, without_gradients=True) == 0


def test_the_date_of_a_post_is_in_its_id() -> None:
    assert witnesses.posted_on(0) == "2010-11-04"
    assert (
        witnesses.posted_on(1756089361609981993) == "2024-02-09"
    )  # the date the notes give, and rightly


def test_the_page_shows_every_row_once_with_its_anchor() -> None:
    html = "".join(errata.rows_of(key) for key in parsing.FILES)
    for finding in FINDINGS:
        assert html.count(f'id="claim-{finding.claim.id}"') == 1
    assert html.count("<li><details ") == len(FINDINGS)


def test_the_page_counts_what_there_is() -> None:
    total = errata.counts().rsplit("<tr>", 1)[1]
    assert [int(n) for n in re.findall(r"<td>(\d+)</td>", total)] == [
        len(FINDINGS),
        *(sum(f.verdict == v for f in FINDINGS) for v in rows.VERDICTS),
        sum(f.severity == "grave" for f in FINDINGS),
    ]


def test_the_page_escapes_what_it_quotes() -> None:
    claim = parsing.parse_claim(good_row() | {"claim": "<script>alert(1)</script> & more"}, "toy")
    html = entry.entry(errata.judge(claim), "<b>a source</b>")
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_an_open_row_says_in_full_how_far_off_it_is() -> None:
    for finding in FINDINGS:
        body = entry.entry(finding, "a source").split("</summary>", 1)[1]
        said = f"<dt>Off by</dt><dd>{escape(finding.off)} ({finding.severity})</dd>"
        assert (said in body) == bool(finding.off), finding.claim.id


def test_a_link_to_a_filter_is_no_cross_reference() -> None:
    """Sphinx looks for a heading of that name, and warnings are errors."""
    text = (ROOT / "book" / "errata.md").read_text(encoding="utf-8")
    assert not re.search(r"\]\(#[^)]*=", text)


def test_what_works_with_a_script_only_is_shown_with_it_and_the_sources_links_need_none() -> None:
    form = re.search(r"<form.*?</form>", errata.controls(), re.S)
    assert form is not None  # hidden without a script
    assert '<a href="#verdict=wrong">' in form[0]
    links = re.findall(r'href="#([^"]+)"', errata.counts())
    assert len(links) == 5
    shown = "".join(errata.rows_of(link.removeprefix("source-")) for link in links)
    assert all(f'id="{link}"' in shown for link in links)


def test_an_unknown_source_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"No source 'x' in the ledger; it has scaling_book_notes"):
        errata.rows_of("x")


def test_the_page_has_a_table_for_every_source() -> None:
    text = (ROOT / "book" / "errata.md").read_text(encoding="utf-8")
    assert re.findall(r'errata\.rows_of\("(\w+)"\)', text) == list(parsing.FILES)


def test_chapters_point_only_to_claims_that_exist() -> None:
    known = {finding.claim.id for finding in FINDINGS}
    chapters = sorted((ROOT / "book").glob("*.md"))
    assert any(":claim:" in chapter.read_text(encoding="utf-8") for chapter in chapters)
    for chapter in chapters:
        text = chapter.read_text(encoding="utf-8")
        pointed = set(re.findall(r"#claim-([a-z0-9-]+)", text))
        for line in re.findall(r"^:claim: *(.+)$", text, re.M):
            pointed |= {name.strip() for name in line.split(",")}
        assert pointed <= known, f"{chapter.name}: no such claims {sorted(pointed - known)}"


def test_numbers_are_printed_with_one_digit_more_than_the_text_has() -> None:
    shown = {
        v: entry.number(v, p)
        for v, p in [(26.86976, 1), (8.02082, 2), (262144, 0), (0.67108864, 0), (243.21, 0)]
    }
    assert json.dumps(list(shown.values())) == json.dumps(
        ["26.87", "8.021", "262,144", "0.671", "243.2"]
    )
