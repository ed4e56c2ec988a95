"""The ledger: every row is computed, and what comes out must support the verdict that stands in
it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from twophase import errata
from twophase.errata import ledger, page, rows, rules, witnesses

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
        case "wrong":
            assert plain is not None
            assert not any(outcome.agrees for outcome in finding.outcomes)
        case "ambiguous":
            assert plain is None
            assert len({str(outcome.values) for outcome in assumed}) > 1
    assert finding.verdict == finding.claim.verdict


@pytest.mark.parametrize("finding", FINDINGS, ids=rule_of)
def test_a_row_says_what_it_needs_to(finding: errata.Finding) -> None:
    claim = finding.claim
    assert finding.correction.endswith((".", ")")), "a correction is a sentence"
    assert "{" not in finding.correction
    assert rows.quoted_words(claim.claim) <= rows.MAX_WORDS
    assert any(case for case in claim.cases) or claim.let, "a row names its inputs"
    for case in claim.cases:
        for value in case.values():
            assert isinstance(value, (int, float)) or rows.amount(value)[1], f"{value} has no unit"


def test_ids_are_unique_over_all_sources_and_name_their_source() -> None:
    ids = [finding.claim.id for finding in FINDINGS]
    assert len(ids) == len(set(ids))
    prefixes = {
        source.key: {claim.id.split("-")[0] for claim in source.claims} for source in errata.load()
    }
    assert all(len(found) == 1 for found in prefixes.values())
    assert len(set.union(*prefixes.values())) == len(rows.FILES)


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
        (26.87, "26.8 GB", "digits", True),  # cut, 0.3 %
        (26.86, "26.9 GB", "digits", True),  # rounded
        (2.57, "2.5 ms", "digits", False),  # cut, but 2.7 %
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
    ],
)
def test_a_bad_row_is_refused_with_one_sentence_that_names_it(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        rows.parse_claim(good_row() | change, "toy")
    assert "toy" in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_good_row_is_computed_and_its_correction_filled() -> None:
    finding = errata.judge(rows.parse_claim(good_row(), "toy"))
    assert finding.verdict == "holds"
    assert finding.correction == "It is 4."


def test_a_row_whose_expression_fails_is_named() -> None:
    claim = rows.parse_claim(good_row() | {"expression": "no_such_formula(B)"}, "toy")
    with pytest.raises(ValueError, match=r"toy, toy-row: NameError: .*no_such_formula"):
        errata.judge(claim)


def test_an_id_used_twice_in_a_file_is_refused() -> None:
    text = yaml.safe_dump({"title": "Toy", "claims": [good_row(), good_row()]})
    with pytest.raises(ValueError, match="ids used twice: toy-row"):
        rows.parse_source(text, "toy")


def test_expressions_reach_no_builtin_function() -> None:
    claim = rows.parse_claim(good_row() | {"expression": "open('/etc/passwd')"}, "toy")
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
    html = "".join(errata.table(key) for key in rows.FILES)
    for finding in FINDINGS:
        assert html.count(f'id="claim-{finding.claim.id}"') == 1
    assert html.count("<tr ") == len(FINDINGS)


def test_the_page_counts_what_there_is() -> None:
    total = errata.counts().rsplit("<tr>", 1)[1]
    assert [int(n) for n in re.findall(r"<td>(\d+)</td>", total)] == [
        len(FINDINGS),
        *(sum(f.verdict == v for f in FINDINGS) for v in rows.VERDICTS),
    ]


def test_the_page_escapes_what_it_quotes() -> None:
    claim = rows.parse_claim(good_row() | {"claim": "<script>alert(1)</script> & more"}, "toy")
    html = page._row(errata.judge(claim))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_an_unknown_source_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"No source 'x' in the ledger; it has scaling_book_notes"):
        errata.table("x")


def test_the_page_has_a_table_for_every_source() -> None:
    text = (ROOT / "book" / "errata.md").read_text(encoding="utf-8")
    assert re.findall(r'errata\.table\("(\w+)"\)', text) == list(rows.FILES)


def test_chapters_point_only_to_claims_that_exist() -> None:
    known = {finding.claim.id for finding in FINDINGS}
    for chapter in sorted((ROOT / "book").glob("*.md")):
        text = chapter.read_text(encoding="utf-8")
        pointed = set(re.findall(r"#claim-([a-z0-9-]+)", text))
        for line in re.findall(r"^:claim: *(.+)$", text, re.M):
            pointed |= {name.strip() for name in line.split(",")}
        assert pointed <= known, f"{chapter.name}: no such claims {sorted(pointed - known)}"


def test_numbers_are_printed_with_one_digit_more_than_the_text_has() -> None:
    shown = {
        v: page.number(v, p)
        for v, p in [(26.86976, 1), (8.02082, 2), (262144, 0), (0.67108864, 0), (243.21, 0)]
    }
    assert json.dumps(list(shown.values())) == json.dumps(
        ["26.87", "8.021", "262,144", "0.671", "243.2"]
    )
