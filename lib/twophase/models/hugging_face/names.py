"""What Hugging Face files call a tensor, and where our Transformer keeps it.

Our parameters have the names of Llama's files, without the "model." before them. What differs
elsewhere: Mixtral's words for an expert and its matrices, StarCoder's for those of an MLP, experts
that are stored one by one where we keep them stacked, or gate and up as one tensor, and the prefix
of the part that speaks in models that also see.
"""

import re
from dataclasses import dataclass

PREFIXES = (
    "language_model.model.",
    "model.language_model.",
    "language_model.",
    "model.",
)  # the longest first
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
STARCODER = {".mlp.c_fc.": ".mlp.up_proj.", ".mlp.c_proj.": ".mlp.down_proj."}
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"

# Tables of angles that old files carry: they follow from config.json, and are computed here.
COMPUTED = re.compile(r".*rotary_emb\.(inv_freq|cos_cached|sin_cached)")
VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*")


@dataclass(frozen=True)
class Place:
    """Where a tensor of a file goes: a parameter of ours, or the row of one expert in it.

    `half`: only the first (0) or second (1) half of the tensor's second axis goes there.
    """

    name: str
    expert: int | None = None
    half: int | None = None


def places(key: str) -> list[Place]:
    """Where the tensor that a file calls `key` goes; whether there is such a parameter is another
    question."""
    prefix = next((p for p in PREFIXES if key.startswith(p)), "")
    key = key.removeprefix(prefix).replace(".block_sparse_moe.", ".mlp.")
    for theirs, ours in STARCODER.items():
        key = key.replace(theirs, ours)
    if match := EXPERT.fullmatch(key):
        experts, number, matrix = match.groups()
        return [Place(f"{experts}.{MIXTRAL.get(matrix, matrix)}", expert=int(number))]
    if key.endswith(".experts.gate_up_proj"):
        experts = key.removesuffix(".gate_up_proj")
        return [Place(f"{experts}.gate_proj", half=0), Place(f"{experts}.up_proj", half=1)]
    return [Place(key)]


def layer_of(key: str) -> int | None:
    """The number of the layer that a tensor belongs to; None if it belongs to none."""
    match = re.match(r"layers\.(\d+)\.", places(key)[0].name)
    return int(match[1]) if match else None
