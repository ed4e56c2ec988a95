"""What several exercises withhold: put together, or asked about one query at a time, each of these
is their answer as well."""

from __future__ import annotations

ATTENTION = (  # all of the library that weighs values by a softmax of scores
    "twophase.kernels.attention.causal_attention",
    "twophase.kernels.attention.full_attention",
    "twophase.kernels.attention.naive_attention",
    "twophase.kernels.attention._prefill",
    "twophase.kernels.attention._in_blocks",
    "twophase.kernels.attention._attend",
    "twophase.kernels.attention._spelled_out",
    "twophase.kernels.attention_training.attention_with_gradient",
    "twophase.kernels.attention_training._Attention",
    "twophase.kernels.online_softmax.flash_attention",
    "twophase.kernels.online_softmax.partial_attention",
    "twophase.kernels.sharding._attend_own",
    "twophase.kernels.sharding.length_split_decode",
    "twophase.kernels.grouped_query_attention.decode_by_head",
    "twophase.kernels.grouped_query_attention.attend",
    "twophase.kernels.latent_attention.expanded_attention",
    "twophase.kernels.latent_attention.attend_unfolded",
    "twophase.kernels.latent_attention.absorbed_attention",
    "twophase.kernels.latent_attention.attend_latents",
    "twophase.kernels.compiled.attention.compiled_attention",
    "twophase.kernels.compiled.attention.compiled_paged_attention",
    "twophase.kernels.compiled.attention.compiled_latent_attention",
    "twophase.kernels.compiled.parts.attend",
    "twophase.kernels.compiled.parts.turn_append_attend",
    "twophase.kernels.compiled.parts.attend_latents",
    "twophase.kernels.compiled.parts._attend_task",
    "twophase.kernels.compiled.parts._latent_task",
    "twophase.kernels.compiled.parts._attend_blocks",
    "twophase.kernels.compiled.parts._latent_blocks",
    "twophase.kernels.compiled.layers.run_layers",
    "twophase.kernels.compiled.layers.run_codes_layers",
)
VERIFICATION = (  # all of the library that keeps a drafted token or replaces it
    "twophase.kernels.speculative_decoding.acceptance_probability",
    "twophase.kernels.speculative_decoding.residual",
    "twophase.kernels.speculative_decoding.verify",
    "twophase.kernels.speculative_decoding.verify_tree",
    "twophase.kernels.speculative_faults.FAULTS",
    "twophase.kernels.speculative_faults.swaps_the_two_laws",
    "twophase.kernels.speculative_faults.reads_the_target_one_row_late",
    "twophase.kernels.speculative_faults.leaves_out_the_bonus",
)
STEP_TIMES = (  # reading beside computing, whatever is read and computed
    "twophase.theory.latency_throughput.step_time_s",
    "twophase.theory.latency_throughput.step_time_split_s",
    "twophase.theory.latency_throughput.memory_step_time_s",
    "twophase.theory.arithmetic_intensity.time_overlapped_s",
    "twophase.theory.arithmetic_intensity.time_serial_s",
    "twophase.theory.arithmetic_intensity.roofline_flops_per_s",
    "twophase.theory.quantization.weights_step_s",
    "twophase.theory.sharded_pass.Load",
    "twophase.theory.sharded_deployment.ShardedDeployment",
)
METERS = (  # what counts the FLOPs and bytes of operators as they run, and what that is made of
    "twophase.measure.meter.Meter",
    "twophase.measure.meter._Mode",
    "twophase.measure.meter._accesses",
    "twophase.measure.regions.Region",
    "twophase.measure.regions.plain_traffic",
    "twophase.measure.formulas.lookup",
)
COUNTS = (  # all of the library that counts the parameters of a model
    "twophase.theory.architecture.Architecture",
    "twophase.theory.count.breakdown",
    "twophase.theory.count._parts",
    "twophase.theory.count._attention",
    "twophase.theory.count._mlp",
    "twophase.theory.params.embedding_params",
    "twophase.theory.params.attention_params",
    "twophase.theory.params.mlp_params",
    "twophase.theory.params.transformer_params",
    "twophase.theory.params.moe_transformer_params",
    "twophase.models.transformer.Transformer",
    "twophase.models.attention.GroupedQueryAttention",
    "twophase.models.mlp.GatedMLP",
)
PART_FLOPS = (  # the products of a layer, part by part
    "twophase.theory.arithmetic_intensity.matmul_flops",
    "twophase.theory.arithmetic_intensity.mlp_flops",
    "twophase.theory.arithmetic_intensity.projection_flops",
    "twophase.theory.arithmetic_intensity.attention_flops",
    "twophase.theory.count.matmul_params",
)
CACHE_BYTES = (  # of a token, or of a sequence: of one token it is the same
    "twophase.theory.kv_cache.kv_bytes_per_token_per_layer",
    "twophase.theory.kv_cache.kv_bytes_per_token",
    "twophase.theory.kv_cache.kv_bytes_per_sequence",
    "twophase.theory.kv_cache.latent_bytes_per_token_per_layer",
    "twophase.theory.kv_cache.latent_bytes_per_sequence",
    "twophase.theory.kv_cache.window_bytes_per_sequence",
    "twophase.theory.kv_cache.hybrid_bytes_per_sequence",
    "twophase.theory.kv_cache.shared_bytes_per_sequence",
)
CONFIGS = (  # all of the library that reads the sizes in a config.json
    "twophase.theory.hugging_face._READERS",
    "twophase.theory.hugging_face.config_sizes",
    "twophase.theory.hugging_face.common.common_sizes",
    "twophase.theory.architecture.Architecture",
)
STORES = (  # all of the library that keeps tokens in their places and refuses those without room
    "twophase.kernels.kv_cache.KVCache",
    "twophase.kernels.kv_cache.SlotStore",
    "twophase.kernels.kv_cache.put",
    "twophase.kernels.kv_cache.check_room",
    "twophase.kernels.span.Span",
    "twophase.kernels.local_attention.RingKVCache",
    "twophase.kernels.latent_attention.LatentCache",
    "twophase.kernels.paging.FlatSpan",
    "twophase.kernels.paging.PagedKV",
    "twophase.kernels.paging.WindowKV",
    "twophase.kernels.paging.PagedLatents",
    "twophase.models.cache.Cache",
)
TURNS = (  # all of the library that turns by RoPE
    "twophase.kernels.rope.apply_rope",
    "twophase.kernels.rope.rope_tables",
    "twophase.kernels.compiled.rope.turn",
    "twophase.kernels.compiled.rope.turn_append",
    "twophase.kernels.compiled.latent.append_latent",
    "twophase.kernels.compiled.latent.absorb",
    "twophase.kernels.compiled.recurrence.linear_attention_step",
)
