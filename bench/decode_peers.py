"""Other programs that take the same decode step, on the same weights: transformers and llama.cpp.

A peer is made of a model and returns a function that takes one step of B sequences on a cache of S
tokens, T new ones each, again and again; or it raises Missing, and says in a sentence why it is not
here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from twophase.models.transformer import Config, Transformer

Step = Callable[[], object]
GGUF_FORMS = {"Q4_0": 2, "Q8_0": 7}  # llama.cpp's numbers for files that mostly hold these


class Missing(Exception):
    """Why a peer is left out."""


def transformers_step(model: Transformer, S: int, B: int, T: int) -> Step:
    """A step of transformers' Llama, with its own cache. Raises Missing without transformers."""
    theirs = transformers_model(model, S + T)
    from transformers import DynamicCache

    held, tokens = DynamicCache(config=theirs.config), torch.full((B, T), 5)
    with torch.inference_mode():
        theirs(torch.full((B, S), 5), past_key_values=held, use_cache=True, logits_to_keep=1)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = theirs(tokens, past_key_values=held, use_cache=True).logits
            held.crop(-T)
        return logits

    return step


def transformers_model(model: Transformer, most: int) -> Any:
    """transformers' Llama on the same weights, for sequences of at most so many tokens. Raises
    Missing without transformers."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise Missing(f"transformers is not installed ({error}).") from None
    c = model.config
    config = LlamaConfig(
        hidden_size=c.D, intermediate_size=c.F, num_hidden_layers=c.L, num_attention_heads=c.N,
        num_key_value_heads=c.K, head_dim=c.H, vocab_size=c.V, rms_norm_eps=c.norm_eps,
        max_position_embeddings=most, tie_word_embeddings=c.tied, rope_theta=c.rope_theta,
    )  # fmt: skip
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    state = {_their_name(name): weight for name, weight in model.state_dict().items()}
    theirs.load_state_dict(state, assign=True, strict=False)
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)  # its table was meta, too
    return theirs.eval()


def _their_name(name: str) -> str:
    return name if name.startswith("lm_head") else f"model.{name}"


def llama_cpp_step(model: Transformer, S: int, B: int, T: int, form: str | None = None) -> Step:
    """A step of llama.cpp, with a cache in the dtype of the weights. `form`: "Q8_0" or "Q4_0", to
    which its own quantizer rounds all matrices. Raises Missing without its Python binding or the
    `gguf` package."""
    llama, context = llama_cpp_context(model, S + T + 15, B, form)
    memory = llama.llama_get_memory(context)
    for b in range(B):
        for start in range(0, S, 512):
            decode(llama, context, [(5, p, b) for p in range(start, min(S, start + 512))])

    def step() -> Any:
        for b in range(B):
            llama.llama_memory_seq_rm(memory, b, S, -1)
        decode(llama, context, [(5, S + t, b) for b in range(B) for t in range(T)], every=True)
        return llama.llama_get_logits_ith(context, B * T - 1)[0]

    return step


def llama_cpp_context(
    model: Transformer, most: int, B: int, form: str | None = None
) -> tuple[Any, Any]:
    """llama.cpp's library, and a context of it with this model and room for B sequences of `most`
    tokens. Arguments and errors as in `llama_cpp_step`."""
    try:
        import gguf  # noqa: F401
        import llama_cpp as llama
    except ImportError as error:
        raise Missing(
            f"llama.cpp is left out, since {error.name} is not installed: with a compiler at hand,"
            " pip install gguf and pip install --no-binary llama-cpp-python llama-cpp-python."
        ) from None
    llama.llama_log_set(_quiet(llama), None)
    loaded = _load(llama, model, form)
    settings = llama.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_seq_max = B * most, 512, B
    settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
    settings.kv_unified = False
    kind = 30 if model.embed_tokens.weight.dtype == torch.bfloat16 else 0  # GGML's BF16 and F32
    settings.type_k = settings.type_v = kind
    context = llama.llama_init_from_model(loaded, settings)
    if not context:
        raise Missing("llama.cpp does not load the weights.")
    return llama, context


def _load(llama: Any, model: Transformer, form: str | None) -> Any:
    """The weights as llama.cpp holds them, in their own dtype or rounded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(model, path)
        if form:
            how = llama.llama_model_quantize_default_params()
            how.ftype, how.pure = GGUF_FORMS[form], True
            rounded = Path(folder) / "rounded.gguf"
            if llama.llama_model_quantize(str(path).encode(), str(rounded).encode(), how):
                raise Missing(f"llama.cpp does not round the weights to {form}.")
            path = rounded
        options = llama.llama_model_default_params()
        options.use_mmap = False
        return llama.llama_model_load_from_file(str(path).encode(), options)


@cache
def _quiet(llama: Any) -> Any:
    """A logger that says nothing, kept for as long as the program runs."""
    return llama.llama_log_callback(lambda *_: None)


def decode(
    llama: Any, context: Any, tokens: list[tuple[int, int, int]], every: bool = False
) -> dict[int, int]:
    """Run tokens, each with its position and its sequence. Logits are those of every token, or of
    the last of each sequence; returned is where in the batch that stood."""
    batch = llama.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    last = {sequence: i for i, (_, _, sequence) in enumerate(tokens)}
    for i, (token, position, sequence) in enumerate(tokens):
        batch.token[i], batch.pos[i] = token, position
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        batch.logits[i] = every or last[sequence] == i
    status = llama.llama_decode(context, batch)
    llama.llama_batch_free(batch)
    if status:
        raise RuntimeError(f"llama_decode failed with status {status}.")
    return last


def write_gguf(model: Transformer, path: Path, vocabulary: bool = False) -> None:
    """The weights as llama.cpp reads them: fp32 or bf16, norms in fp32; without a tokenizer, or
    with a made-up `vocabulary`, without which its server does not start."""
    import gguf

    c = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(131_072)
    writer.add_embedding_length(c.D)
    writer.add_block_count(c.L)
    writer.add_feed_forward_length(c.F)
    writer.add_head_count(c.N)
    writer.add_head_count_kv(c.K)
    writer.add_key_length(c.H)
    writer.add_value_length(c.H)
    writer.add_rope_dimension_count(c.H)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_vocab_size(c.V)
    if vocabulary:
        _add_vocabulary(writer, c.V)
    else:
        writer.add_tokenizer_model("no_vocab")
    for name, weight in tensors(model, c):
        if weight.dtype == torch.bfloat16 and weight.ndim > 1:
            bits = weight.contiguous().view(torch.uint8).numpy()
            writer.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, V: int) -> None:
    """V texts: the three special tokens and the 256 bytes that its tokenizer looks for, then
    numbers."""
    import gguf

    special = {"<unk>": gguf.TokenType.UNKNOWN, "<s>": gguf.TokenType.CONTROL}
    special |= {"</s>": gguf.TokenType.CONTROL}
    found = special | {f"<0x{byte:02X}>": gguf.TokenType.BYTE for byte in range(256)}
    found |= {f"{i} ": gguf.TokenType.NORMAL for i in range(len(found), V)}
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(found))
    writer.add_token_scores([0.0] * V)
    writer.add_token_types(list(found.values()))


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def tensors(model: Transformer, c: Config) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight with llama.cpp's name. It pairs neighbors in RoPE, so rows of queries and keys
    change places."""
    state = model.state_dict()
    yield "token_embd.weight", state["embed_tokens.weight"]
    yield "output_norm.weight", state["norm.weight"]
    yield "output.weight", state["lm_head.weight"]
    for layer in range(c.L):
        for ours, theirs in GGUF_NAMES.items():
            weight = state[f"layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                pairs = weight.view(-1, 2, c.H // 2, c.D).transpose(1, 2)  # [heads, H/2, 2, D]
                weight = pairs.reshape(-1, c.D)
            yield f"blk.{layer}.{theirs}.weight", weight
