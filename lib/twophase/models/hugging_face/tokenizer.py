"""Text to tokens and back by a checkpoint's tokenizer.json, and which tokens end its text.

What begins a text is what the post-processor of tokenizer.json adds, as in transformers 5, which no
longer reads `add_bos_token` of tokenizer_config.json; where the two disagree, a note says so.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Rules

from twophase.models.hugging_face.shards import read_json
from twophase.models.hugging_face.spaces import built_anew
from twophase.theory.hugging_face.values import flag

CONTEXT = 6  # tokens of the prompt that the first new ones are decoded with
LONGEST = 8  # more tokens than any one character takes
FEWEST = 0.9  # of a vocabulary; published models pad theirs by up to 2.3%
INCOMPLETE = "\ufffd"  # what decoders write for bytes that are no character, or not yet


class Tokenizer:
    """The tokenizer of a Hugging Face directory.

    V: tokens that the model knows (rows of its embedding); without it nothing is compared with the
    model. Raises ValueError if there is no tokenizer that can be read, or if its vocabulary is
    larger than V: it then is another model's. `notes` holds sentences about what may be wrong.
    """

    def __init__(self, folder: Path | str, V: int | None = None) -> None:
        path = Path(folder) / "tokenizer.json"
        if not os.path.lexists(path):
            model = os.path.lexists(path.with_suffix(".model"))
            other = " (tokenizer.model, of SentencePiece, is not read)" if model else ""
            raise ValueError(
                f"there is no tokenizer.json in {path.parent}{other}: get it, or give tokens"
                " instead of text."
            )
        file = read_json(path)
        try:
            self.rules = Rules.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(
                f"{path} is no tokenizer that the tokenizers library can read ({error})."
            ) from None
        self.rules.no_truncation()
        self.rules.no_padding()
        self.V = V
        asked = _beside(path, "tokenizer_config.json")
        self.unknown = [
            token for token in _named(asked) if token and self.rules.token_to_id(token) is None
        ]
        self.rules.encode_special_tokens = flag(asked, "split_special_tokens")
        model_type = _beside(path, "config.json").get("model_type")
        self.other = built_anew(self.rules, file, asked, model_type)
        self.notes = [*self._about_size(path), *self._about_ends(path, asked)]

    def _about_size(self, path: Path) -> Iterator[str]:
        """Whether the vocabulary may be the model's. Rows that no token has are padding; a token
        without a row may be one that this model is never given (images in Gemma 3 1B)."""
        own, all_ = (self.rules.get_vocab_size(with_added_tokens=more) for more in (False, True))
        if self.V is None:
            return
        if own > self.V:
            raise ValueError(
                f"{path} knows {own:,} tokens, but the model {self.V:,}: it is the tokenizer of"
                " another model."
            )
        if all_ < FEWEST * self.V:
            yield (
                f"{path.name} knows {all_:,} tokens, the model {self.V:,}: it may be the tokenizer"
                " of another model."
            )

    def _about_ends(self, path: Path, asked: Mapping[str, Any]) -> Iterator[str]:
        """Whether tokenizer_config.json asks for another beginning or end than tokenizer.json
        makes."""
        plain = self.rules.encode("a", add_special_tokens=False).ids
        made = self.rules.encode("a").ids
        for key, name, at in (
            ("add_bos_token", "bos_token", 0),
            ("add_eos_token", "eos_token", -1),
        ):
            token = _text(asked.get(name))
            wanted = self.rules.token_to_id(token)
            if wanted is None or asked.get(key) is None:
                continue
            does = made[at : at + 1 or None] == [wanted] and len(made) > len(plain)
            if flag(asked, key) != does:
                yield (
                    f"tokenizer_config.json says {key} {str(asked[key]).lower()}, but {path.name}"
                    f" adds {'' if does else 'no '}{token}: {path.name} counts, as in transformers"
                    " 5; older releases disagree."
                )

    def encode(self, text: str) -> list[int]:
        """Tokens, with those that the file's post-processor adds: for most families one that begins
        the text."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("the prompt is no text: it holds bytes that are no UTF-8.") from None
        if lost := [token for token in self.unknown if token in text]:
            raise ValueError(
                f"the text holds {lost[0]!r}, a token by tokenizer_config.json, but tokenizer.json"
                " does not know it: the files do not belong together."
            )
        tokens = list(self.rules.encode(text).ids)
        if self.other is not None and tokens != list(self.other.encode(text).ids):
            raise ValueError(
                "tokenizer.json and transformers 5, which does not read it for the tokenizer_class"
                " of this model, make different tokens of a text with a space at its beginning or"
                " beside a special token: leave that space out, or give tokens instead of text."
            )
        if self.V is not None and (beyond := [token for token in tokens if token >= self.V]):
            raise ValueError(
                f"the tokenizer makes token {beyond[0]} ({self.rules.id_to_token(beyond[0])!r}) of"
                f" this text, but the model knows {self.V:,} tokens only."
            )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Text, without special tokens."""
        return self.rules.decode(list(tokens), skip_special_tokens=True)

    def stream(self, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        """The text that new tokens add to a prompt, piece by piece, each character whole.

        A token may be part of a character, and whether it begins with a space may depend on the
        token before it. So a few earlier tokens are decoded with and without the new ones; the
        difference is shown once it ends in a character.
        """
        known, new = self._end_of(prompt), list[int]()
        for token in tokens:
            new.append(token)
            text = self._added(known, new)
            if text and (not text.endswith(INCOMPLETE) or len(new) > LONGEST):
                yield text
                known, new = new, []
        if text := self._added(known, new):
            yield text

    def _end_of(self, prompt: Sequence[int]) -> list[int]:
        """The last tokens of a prompt, from one on that begins a character."""
        starts = range(
            max(len(prompt) - CONTEXT, 0), max(len(prompt) - CONTEXT - LONGEST, 0) - 1, -1
        )
        ends = (list(prompt[start:]) for start in starts)
        return next(
            (end for end in ends if not self.decode(end).startswith(INCOMPLETE)),
            list(prompt[-CONTEXT:]),
        )

    def _added(self, known: list[int], new: list[int]) -> str:
        """What `new` adds to the text of `known`."""
        return self.decode(known + new)[len(self.decode(known)) :]


def _beside(path: Path, name: str) -> dict[str, Any]:
    """What another file of the directory holds; nothing if it is not there."""
    beside = path.with_name(name)
    return read_json(beside) if os.path.lexists(beside) else {}


def _named(asked: Mapping[str, Any]) -> list[str]:
    """Every token that a tokenizer_config.json names, as text."""
    lists = [asked.get(key) for key in ("additional_special_tokens", "extra_special_tokens")]
    lists.append(asked.get("added_tokens_decoder"))
    found = [asked.get(f"{name}_token") for name in ("bos", "eos", "unk", "pad")]
    for many in lists:
        many = list(many.values()) if isinstance(many, dict) else many
        found.extend(many if isinstance(many, list) else [])
    return [_text(token) for token in found]


def _text(token: Any) -> str:
    """A token is written as text, or as an object with its `content`; "" for anything else."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""


def stop_tokens(folder: Path | str) -> list[int]:
    """The tokens that end a text: `eos_token_id` of generation_config.json; where that file does
    not say, or is not there, of config.json. None if neither says."""
    folder = Path(folder)
    config = read_json(folder / "config.json")
    texts = [config, config.get("text_config") or {}]
    if os.path.lexists(folder / "generation_config.json"):
        texts.insert(0, read_json(folder / "generation_config.json"))
    for source in texts:
        found = source.get("eos_token_id") if isinstance(source, dict) else None
        if found is not None:
            ids = found if isinstance(found, list) else [found]
            if any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
                raise ValueError(
                    f"{folder}: eos_token_id must be a number or a list of numbers, but it is"
                    f" {found!r}."
                )
            _check_ends(ids, texts, folder)
            return ids
    return []


def _check_ends(ids: list[int], texts: list[Any], folder: Path) -> None:
    """An end that the model cannot write never comes."""
    sizes = [text.get("vocab_size") for text in texts if isinstance(text, dict)]
    V = next((size for size in sizes if isinstance(size, int)), None)
    if V is not None and (beyond := [token for token in ids if not 0 <= token < V]):
        raise ValueError(
            f"{folder}: eos_token_id {beyond[0]} is outside the vocabulary of {V:,}: the files do"
            " not belong together."
        )
