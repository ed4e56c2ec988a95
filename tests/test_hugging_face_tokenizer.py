"""Tokens are those of transformers; text that streams is whole text, whatever the tokens are parts
of."""

import json
from pathlib import Path
from typing import Any

import pytest
from draws import draws
from hugging_face_folders import byte_level, sentence_piece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from twophase.models import hugging_face
from twophase.models.hugging_face import Tokenizer, stop_tokens

KINDS = {"byte-level": byte_level, "SentencePiece": sentence_piece}
LINES = [
    "the cat sat on the mat",
    " two  spaces \n",
    "東京 and 京都, 👩‍🔬🧪!",
    "naïve café",
    "Ελλάδα",
    "a",
    "東" * 9,
]


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    made = {}
    for kind, make in KINDS.items():
        folder = tmp_path_factory.mktemp("tokenizer")
        make().save(str(folder / "tokenizer.json"))
        made[kind] = Tokenizer(folder)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_text_are_those_of_transformers(kind, tokenizers, tmp_path):
    from transformers import PreTrainedTokenizerFast

    ours = tokenizers[kind]
    ours.rules.save(str(tmp_path / "tokenizer.json"))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for line in LINES:
        tokens = ours.encode(line)
        assert tokens == theirs(line)["input_ids"]
        assert ours.decode(tokens) == theirs.decode(tokens, skip_special_tokens=True) == line


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_begins_with_the_token_that_the_file_says(kind, tokenizers, tmp_path):
    first = "<|begin|>" if kind == "byte-level" else "<s>"
    tokens = tokenizers[kind].encode("the cat")
    assert tokens[0] == tokenizers[kind].rules.token_to_id(first)
    assert tokens.count(tokens[0]) == 1
    plain = KINDS[kind]()
    plain.post_processor = None
    plain.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).encode("the cat") == tokens[1:]


@pytest.mark.parametrize("kind", KINDS)
@draws(60)
@given(
    parts=st.lists(st.sampled_from([*LINES, " ", "\n", "é", "x y"]), min_size=1, max_size=6),
    at=st.integers(0, 80),
)
def test_streamed_pieces_are_the_rest_of_the_text_in_whole_characters(kind, parts, at, tokenizers):
    tokenizer = tokenizers[kind]
    text = "".join(parts)
    tokens = tokenizer.encode(text)
    at = min(at, len(tokens))
    while "\ufffd" in tokenizer.decode(tokens[:at]):
        at += 1  # a prompt does not end inside a character
    pieces = list(tokenizer.stream(tokens[:at], tokens[at:]))
    assert "".join(pieces) == text[len(tokenizer.decode(tokens[:at])) :]
    assert not any("\ufffd" in piece or not piece for piece in pieces)


def test_a_prompt_is_not_read_from_the_middle_of_a_character(tokenizers):
    tokenizer = tokenizers[
        "SentencePiece"
    ]  # here a character is three or four tokens, and half of one spoils its neighbors
    for end in ("東🧪", "東東a", "🧪🧪", "a🧪東"):
        prompt = tokenizer.encode("東東" + end)
        assert list(
            tokenizer.stream(prompt, tokenizer.encode("東東" + end + "京x")[len(prompt) :])
        ) == ["京", "x"]


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_character_appear_as_marks_and_do_not_stop_the_stream(kind, tokenizers):
    tokenizer = tokenizers[kind]
    lone = tokenizer.encode("東")[-1]  # the last byte of three
    begin = tokenizer.encode("the cat")
    shown = list(tokenizer.stream(begin, [lone] * 30 + begin[1:]))
    assert len(shown) > 3
    assert "".join(shown).count("\ufffd") >= 20
    assert "".join(shown).endswith("the cat")
    assert list(tokenizer.stream(begin, [lone])) == [
        "\ufffd"
    ]  # at the end it is shown all the same


def test_special_tokens_are_not_shown(tokenizers):
    tokenizer = tokenizers["byte-level"]
    tokens = tokenizer.encode("the cat")
    end = tokenizer.rules.token_to_id("<|end|>")
    assert "".join(tokenizer.stream(tokens, [*tokens[1:], end])) == "the cat"


def test_a_file_that_cuts_and_pads_does_neither_here(tmp_path):
    rules = byte_level()
    rules.enable_truncation(3)
    rules.enable_padding(length=50)
    rules.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode(LINES[0])) == LINES[0]
    assert len(tokenizer.encode("the")) < 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no tokenizer.json in .*: get it, or give tokens"),
        ("{", "tokenizer.json cannot be read"),
        ("{}", "is no tokenizer that the tokenizers library can read"),
        ('{"model": {"type": "Magic"}}', "is no tokenizer that"),
    ],
)
def test_a_tokenizer_that_is_missing_or_damaged_is_a_sentence(content, says, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=says) as caught:
        Tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_other_tokenizer_file_is_named(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ValueError, match=r"tokenizer\.model, of SentencePiece, is not read"):
        Tokenizer(tmp_path)


def test_text_that_is_no_text_is_refused(tokenizers):
    with pytest.raises(ValueError, match="bytes that are no UTF-8"):
        tokenizers["byte-level"].encode("a\udcff")


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ('{"eos_token_id": 2}', None, [2]),
        ('{"eos_token_id": 2}', '{"eos_token_id": [5, 7]}', [5, 7]),
        ('{"eos_token_id": [2, 3]}', "{}", [2, 3]),
        ('{"text_config": {"eos_token_id": 4}}', None, [4]),
        ('{"eos_token_id": null}', '{"eos_token_id": null}', []),
    ],
)
def test_what_ends_a_text_is_in_the_generation_config_or_else_in_the_config(
    config, generation, expected, tmp_path
):
    (tmp_path / "config.json").write_text(config)
    if generation:
        (tmp_path / "generation_config.json").write_text(generation)
    assert stop_tokens(tmp_path) == expected


def test_a_generation_config_that_cannot_be_read_is_not_passed_over(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    beside = tmp_path / "generation_config.json"
    beside.symlink_to("nowhere")
    with pytest.raises(ValueError, match="is a link to nowhere, which is not there"):
        stop_tokens(tmp_path)
    beside.unlink()
    beside.mkdir()
    with pytest.raises(ValueError, match="must be a file, but it is something else"):
        stop_tokens(tmp_path)


@pytest.mark.parametrize("read", [stop_tokens, Tokenizer, hugging_face.load])
def test_files_that_may_not_be_read_are_a_sentence(read, tmp_path, monkeypatch):
    def denied(path: Path, *how: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ValueError, match=r"\.json cannot be read: Permission denied\.$"):
        read(tmp_path)


def test_an_end_that_is_no_token_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ValueError, match="eos_token_id must be a number"):
        stop_tokens(tmp_path)


# What stands beside tokenizer.json: tokenizer_config.json, and the model

ENDS = {"byte-level": ("<|begin|>", "<|end|>"), "SentencePiece": ("<s>", "</s>")}
FAMILY = {"byte-level": "llama", "SentencePiece": "mistral"}
POSTS = {"none": "", "begin": "{0} $A", "end": "$A {1}", "both": "{0} $A {1}"}


def tokenizer_folder(folder: Path, kind: str, post: str, **asked: Any) -> Path:
    """A directory whose tokenizer.json adds by `post`, and whose tokenizer_config.json asks."""
    rules, ends = KINDS[kind](), ENDS[kind]
    tokens = [(end, rules.token_to_id(end)) for end in ends]
    template = POSTS[post].format(*ends)
    rules.post_processor = (
        processors.TemplateProcessing(template, special_tokens=tokens)
        if template
        else processors.ByteLevel(trim_offsets=False)
    )
    rules.save(str(folder / "tokenizer.json"))
    named = dict(zip(("bos_token", "eos_token"), ends, strict=True))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named, **asked}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": FAMILY[kind]}))
    return folder


@pytest.mark.parametrize("add", [None, True, False])
@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_added_is_what_auto_tokenizer_adds_and_a_disagreement_is_said(
    kind, post, add, tmp_path
):
    from transformers import AutoTokenizer

    asked = {} if add is None else {"add_bos_token": add, "add_eos_token": add}
    folder = tokenizer_folder(tmp_path, kind, post, **asked)
    ours, theirs = Tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for line in LINES:
        assert ours.encode(line) == theirs(line)["input_ids"]
    does = {"add_bos_token": post in ("begin", "both"), "add_eos_token": post in ("end", "both")}
    wrong = [key for key, value in does.items() if add not in (None, value)]
    assert [note.split()[2] for note in ours.notes] == wrong
    assert all("tokenizer.json counts, as in transformers 5" in note for note in ours.notes)


def test_a_switch_of_the_tokenizer_config_that_is_text_is_refused(tmp_path):
    folder = tokenizer_folder(tmp_path, "SentencePiece", "begin", add_bos_token="false")
    with pytest.raises(
        ValueError, match="'add_bos_token' must be true or false, but it is 'false'"
    ):
        Tokenizer(folder)
    written_out = {"content": "<s>", "special": True}  # as old files name a token
    tokenizer_folder(tmp_path, "SentencePiece", "none", bos_token=written_out, add_bos_token=True)
    assert "adds no <s>" in Tokenizer(folder).notes[0]


EXTRA: tuple[dict[str, Any], ...] = (
    {"additional_special_tokens": ["<extra>"]},
    {"extra_special_tokens": {"image_token": "<extra>"}},
    {"added_tokens_decoder": {"390": {"content": "<extra>", "special": True}}},
    {"pad_token": {"content": "<extra>", "__type": "AddedToken"}},
    {"split_special_tokens": True},
    {"split_special_tokens": False, "additional_special_tokens": 7},
)


@pytest.mark.parametrize("asked", EXTRA, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_only_the_tokenizer_config_knows_are_refused_in_a_text(kind, asked, tmp_path):
    from transformers import AutoTokenizer

    folder = tokenizer_folder(tmp_path, kind, "begin", **asked)
    ours, begin = Tokenizer(folder), ENDS[kind][0]
    odd = asked.get("additional_special_tokens") == 7  # which transformers does not read at all
    theirs = None if odd else AutoTokenizer.from_pretrained(folder)
    for line in ("the cat", f"the {begin} cat", "the <extra> cat"):
        if "<extra>" in line and "<extra>" in str(asked):
            with pytest.raises(
                ValueError, match="the text holds '<extra>', a token by tokenizer_c"
            ):
                ours.encode(line)
        elif theirs is not None:
            assert ours.encode(line) == theirs(line)["input_ids"]


def test_the_tokenizer_of_another_model_is_refused_or_named_and_padding_is_tolerated(
    tokenizers, tmp_path
):
    rules = tokenizers["byte-level"].rules
    size = rules.get_vocab_size(with_added_tokens=True)
    folder = tmp_path
    rules.save(str(folder / "tokenizer.json"))
    for V in (size, size + 1, round(size / 0.95)):  # published models: up to 2.3%
        assert Tokenizer(folder, V).notes == []
    assert "it may be the tokenizer of another model" in Tokenizer(folder, 2 * size).notes[0]
    with pytest.raises(
        ValueError, match=rf"knows {size:,} tokens, but the model {size - 1:,}: it is"
    ):
        Tokenizer(folder, size - 1)


def test_a_token_beyond_the_vocabulary_is_refused_where_a_text_has_it(tmp_path):
    rules = byte_level()
    V = rules.get_vocab_size(with_added_tokens=False)
    rules.add_special_tokens(["<image>"])  # as Gemma 3's 1B has one, and no row for it
    rules.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path, V)
    assert tokenizer.notes == []
    assert max(tokenizer.encode("the cat")) < V
    with pytest.raises(ValueError, match=rf"makes token {V} \('<image>'\).*{V:,} tokens only"):
        tokenizer.encode("the <image> cat")


def test_an_end_that_the_model_cannot_write_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 100, "eos_token_id": 2}')
    assert stop_tokens(tmp_path) == [2]
    for odd in (100, -1):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, odd]}))
        with pytest.raises(
            ValueError, match=f"eos_token_id {odd} is outside the vocabulary of 100"
        ):
            stop_tokens(tmp_path)


# Spaces at the beginning, where transformers 5 builds a tokenizer anew

SPACED = ["the cat", " the cat", "  the cat", "the  cat", "the cat ", "<s> the cat", "<s>the", " "]


@pytest.mark.parametrize("legacy", [None, False, True])
@pytest.mark.parametrize("model_type", ["llama", "gemma2", "deepseek_v2", "mistral", "stablelm"])
@pytest.mark.parametrize("named", ["LlamaTokenizer", "LlamaTokenizerFast", "TokenizersBackend"])
def test_spaces_are_read_as_transformers_reads_them_or_refused(named, model_type, legacy, tmp_path):
    from transformers import AutoTokenizer

    asked: dict[str, Any] = {"tokenizer_class": named, "bos_token": "<s>", "eos_token": "</s>"}
    asked |= {"unk_token": "<unk>"} | ({} if legacy is None else {"legacy": legacy})
    sentence_piece().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(asked))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), Tokenizer(tmp_path)
    taken = {text for text in SPACED if taken_by(ours, text)}
    for text in taken:
        assert ours.encode(text) == theirs(text)["input_ids"], text
    refused = set(SPACED) - taken
    built_anew = named.startswith("Llama") and model_type not in ("mistral", "stablelm")
    assert refused <= {" the cat", "  the cat", "<s> the cat", "<s>the", " "}
    assert (" the cat" in refused) == built_anew
    assert bool(refused) == built_anew


def taken_by(tokenizer: Tokenizer, text: str) -> bool:
    try:
        tokenizer.encode(text)
    except ValueError as error:
        return "a space at its beginning" not in str(error)
    return True
