"""Text to tokens and back by a checkpoint's tokenizer.json, and which tokens end its text."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer as Rules

from twophase.models.hugging_face.shards import read_json

CONTEXT = 6  # tokens of the prompt that the first new ones are decoded with
LONGEST = 8  # more tokens than any one character takes
INCOMPLETE = "\ufffd"  # what decoders write for bytes that are no character, or not yet


class Tokenizer:
    """The tokenizer of a Hugging Face directory. Raises ValueError if it has none that can be
    read."""

    def __init__(self, folder: Path | str) -> None:
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            other = (
                " (tokenizer.model, of SentencePiece, is not read)"
                if path.with_suffix(".model").is_file()
                else ""
            )
            raise ValueError(
                f"there is no tokenizer.json in {path.parent}{other}: get it, or give tokens"
                " instead of text."
            )
        read_json(path)  # for its sentence, if the file is damaged
        try:
            self.rules = Rules.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(
                f"{path} is no tokenizer that the tokenizers library can read ({error})."
            ) from None
        self.rules.no_truncation()
        self.rules.no_padding()

    def encode(self, text: str) -> list[int]:
        """Tokens, with those that the file's post-processor adds: for most families one that begins
        the text."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("the prompt is no text: it holds bytes that are no UTF-8.") from None
        return list(self.rules.encode(text).ids)

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


def stop_tokens(folder: Path | str) -> list[int]:
    """The tokens that end a text: `eos_token_id` of generation_config.json, else of config.json.
    None if neither says."""
    folder = Path(folder)
    config = read_json(folder / "config.json")
    texts = [config, config.get("text_config") or {}]
    if (folder / "generation_config.json").is_file():
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
            return ids
    return []
