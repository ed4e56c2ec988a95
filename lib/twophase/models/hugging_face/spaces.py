"""Spaces at the beginning of a text, about which releases of transformers disagree.

SentencePiece puts a space before every text, one more if it begins with one, and so says Llama 2's
tokenizer.json. transformers 5 does not read that file for tokenizers of these classes: it builds
them anew, by rules that leave the first space as it is.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as Rules
from tokenizers import normalizers, pre_tokenizers

BUILT_ANEW = ("LlamaTokenizer", "LlamaTokenizerFast")
READ_AS_THEY_ARE = ("mistral", "mixtral", "glm4_moe", "stablelm")  # model types, whatever the class


def built_anew(
    rules: Rules, file: Mapping[str, Any], asked: Mapping[str, Any], model_type: object
) -> Rules | None:
    """The tokenizer that transformers 5 makes in place of `rules`, whose tokenizer.json is `file`
    and whose tokenizer_config.json is `asked`; None where it reads the file, or both agree."""
    normalizer = file.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if (
        asked.get("tokenizer_class") not in BUILT_ANEW
        or model_type in READ_AS_THEY_ARE
        or not any(step.get("type") == "Prepend" for step in steps)
    ):
        return None
    other = Rules.from_str(rules.to_str())
    scheme = "always" if asked.get("legacy") else "first"
    if asked.get("add_prefix_space") is False:
        scheme = "never"
    other.normalizer = normalizers.Sequence([])
    other.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    other.encode_special_tokens = rules.encode_special_tokens
    return other
