"""Which keys of a config.json change what a model computes, and which do not.

How the lists were made. Every field of these families' config classes in transformers 5.23 was
looked up in the code that uses it (`tests/test_hugging_face_config.py` proves that none of them is
on no list), and so were the keys that published files of these families have besides. REFUSED adds
what other families, forks and quantizers write where the result would change without the name or
the shape of a tensor betraying it. A key on no list is ignored, and a warning names it. What adds
or removes a tensor needs no list: every tensor must find its place, and every parameter its tensor.
"""

from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Read by `twophase.theory.hugging_face` or by `config.py` here.
READ = _words("""
    model_type architectures text_config vision_config
    hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size
    max_position_embeddings tie_word_embeddings rms_norm_eps hidden_act hidden_activation attention_bias mlp_bias
    rope_theta rope_scaling rope_parameters rope_local_base_freq rope_interleave partial_rotary_factor original_max_position_embeddings
    sliding_window use_sliding_window max_window_layers layer_types sliding_window_pattern _sliding_window_pattern
    query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping
    num_local_experts num_experts num_experts_per_tok moe_intermediate_size norm_topk_prob decoder_sparse_step
    mlp_only_layers n_routed_experts n_shared_experts first_k_dense_replace moe_layer_freq n_group topk_group
    topk_method scoring_func routed_scaling_factor
    kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim qk_head_dim
    layer_norm_eps norm_epsilon use_bias use_qkv_bias
""")

# What kind of value a key has. Text for a number or a switch, 1 for true and the like are refused
# under any key, read or not: what one program takes such a value for another does not.
SWITCHES = _words("""
    tie_word_embeddings attention_bias mlp_bias use_sliding_window norm_topk_prob rope_interleave
    use_bidirectional_attention is_causal is_encoder_decoder add_cross_attention alibi use_mrope
    use_qk_norm qk_layernorm use_parallel_residual rope_interleaved use_bias use_qkv_bias
""")
COUNTS = _words("""
    hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    vocab_size max_position_embeddings original_max_position_embeddings sliding_window
    max_window_layers sliding_window_pattern _sliding_window_pattern num_local_experts num_experts
    num_experts_per_tok moe_intermediate_size decoder_sparse_step n_routed_experts n_shared_experts
    first_k_dense_replace moe_layer_freq n_group topk_group kv_lora_rank q_lora_rank
    qk_rope_head_dim qk_nope_head_dim v_head_dim qk_head_dim
""")
NUMBERS = _words("""
    rms_norm_eps rope_theta rope_local_base_freq partial_rotary_factor query_pre_attn_scalar
    attn_logit_softcapping final_logit_softcapping routed_scaling_factor layer_norm_eps norm_epsilon
""")

# A number, name or switch that null leaves open: what is meant by it nobody knows, and transformers
# 5 refuses it. So it does for most keys that have a value where a file leaves them out; where null
# has a meaning of its own (no window, no cap, no latent of queries), it is taken.
NEVER_NULL = _words("""
    rms_norm_eps tie_word_embeddings hidden_act hidden_activation rope_theta rope_local_base_freq
    query_pre_attn_scalar routed_scaling_factor layer_norm_eps norm_epsilon attention_bias mlp_bias
    use_bias use_qkv_bias max_position_embeddings
""")
NULL_MEANS = _words("""
    sliding_window q_lora_rank attn_logit_softcapping final_logit_softcapping sliding_window_pattern
""")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # three names of one number

# Bookkeeping, training, sampling defaults, the other half of a multimodal model, second names that
# no program reads, and what would show in a tensor of its own: nothing that changes a logit.
HARMLESS = _words("""
    is_llama_config transformers_version _name_or_path name_or_path auto_map torch_dtype dtype _commit_hash _attn_implementation_autoset
    attn_implementation _attn_implementation experts_implementation _experts_implementation use_cache
    cache_implementation unsloth_fixed unsloth_version torchscript use_bfloat16 tf_legacy_loss
    initializer_range attention_dropout pretraining_tp output_router_logits router_aux_loss_coef router_jitter_noise
    aux_loss_alpha seq_aux ep_size num_nextn_predict_layers num_mtp_layers
    return_dict output_hidden_states output_attentions chunk_size_feed_forward id2label label2id num_labels
    problem_type finetuning_task task_specific_params tokenizer_class prefix is_decoder tie_encoder_decoder
    cross_attention_hidden_size bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    activation_function attention_softmax_in_fp32 scale_attention_softmax_in_fp32 scale_attn_weights
    residual_dropout embedding_dropout hidden_dropout layer_norm_epsilon sliding_window_size qkv_bias
    shared_expert_intermediate_size transformers.js_config internal_version
    boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id image_token_id mm_tokens_per_image
""")

# Keys that change results in ways not built here, with the values that ask for nothing.
REFUSED: dict[str, tuple[Any, ...]] = {
    # Read in some families (see `families.py`), and meant to do something in whatever other file
    # has them.
    "sliding_window": (None,),
    "use_sliding_window": (None, False),
    "layer_types": (None,),
    "sliding_window_pattern": (None,),
    "query_pre_attn_scalar": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "rope_local_base_freq": (None,),
    "rope_interleave": (None,),
    "norm_topk_prob": (None,),
    "scoring_func": (None, "softmax"),
    "topk_method": (None, "greedy"),
    "n_group": (None, 1),
    "topk_group": (None, 1),
    "routed_scaling_factor": (None, 1),
    # Of other families, of forks, of quantizers.
    "quantization_config": (None,),
    "compression_config": (None,),
    "per_layer_config": (None, {}, []),
    "pruned_heads": (None, {}),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "use_bidirectional_attention": (None, False),
    "is_causal": (None, True),
    "norm_type": (None,),
    "mlp_type": (None, "default"),
    "position_embedding_type": (None, "rope", "rotary"),
    "alibi": (None, False),
    "use_mrope": (None, False),
    "rope_interleaved": (None, False),
    "rope_ratio": (None, 1),
    "rotary_pct": (None, 1),
    "rotary_dim": (None,),
    "attention_sink_size": (None, 0),
    "attention_chunk_size": (None, 0),
    "attn_temperature_tuning": (None, False, 0),
    "no_rope_layers": (None, []),
    "no_rope_layer_interval": (None, 0),
    "use_qk_norm": (None, False),
    "qk_layernorm": (None, False),
    "clip_qkv": (None,),
    "use_parallel_residual": (None, False),
    "index_topk": (None,),
    "attention_multiplier": (None,),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "scale_emb": (None, 1),
    "scale_depth": (None,),
    "dim_model_base": (None,),
}
