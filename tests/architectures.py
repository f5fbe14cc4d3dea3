"""The architectures of transformers that test_architectures.py measures, or sees refused, and what is special in each.

docs/generate.py writes them into docs/reference/architectures.md.
"""

from dataclasses import dataclass, field
from typing import Any

SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Architecture:
    """A family of models.

    Attributes:
        model: Name of its class.
        special: What is special in it.
        tied, bias, scale, cap: Its head, as a store's identity records it.
        options: What its configuration needs beside the sizes.
        refused: Whether it is refused, because it does not predict the next token.
    """

    model: str
    special: str
    tied: bool = False
    bias: bool = False
    scale: float = 1.0
    cap: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    refused: bool = False


HEADS, WINDOW, RECURRENT, FFN = {"head_dim": 8}, {"sliding_window": 16}, {"attention_window_size": 16}, {"ffn_dim": 64}
PROJECTED, DECODER = {"word_embed_proj_dim": 16, "ffn_dim": 64}, {"is_decoder": True}
LOCAL = {"attention_types": [[["global", "local"], 1]]}
EXPERTS = {
    "num_experts": 4,
    "moe_intermediate_size": 16,
    "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16, "mamba_d_ssm": 64,
    "lm_head_multiplier": 0.04,
}  # fmt: skip
MAMBA2 = {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 16}
LATENT = {
    "moe_intermediate_size": 16, "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
ENCODER_DECODER, MASKED = "encoder-decoder", "masked language model"

ARCHITECTURES = (
    Architecture("GPT2LMHeadModel", "learned positions", tied=True),
    Architecture("OpenAIGPTLMHeadModel", "learned positions, no final norm", tied=True),
    Architecture("GPTNeoForCausalLM", "local attention", tied=True, options=LOCAL),
    Architecture("GPTJForCausalLM", "parallel blocks, rotary positions", bias=True, options={"rotary_dim": 4}),
    Architecture("GPTNeoXForCausalLM", "parallel blocks, rotary positions"),
    Architecture("GPTBigCodeForCausalLM", "multi-query attention", tied=True),
    Architecture("CodeGenForCausalLM", "parallel blocks, rotary positions", bias=True, options={"rotary_dim": 4}),
    Architecture("OPTForCausalLM", "head narrower than the blocks", tied=True, options=PROJECTED),
    Architecture("XGLMForCausalLM", "sinusoidal positions", tied=True, options=FFN),
    Architecture("BioGptForCausalLM", "scaled input embedding", tied=True),
    Architecture("CTRLLMHeadModel", "sinusoidal positions", tied=True, bias=True, options={"dff": 64}),
    Architecture("BloomForCausalLM", "ALiBi positions", tied=True),
    Architecture("MptForCausalLM", "ALiBi positions", tied=True),
    Architecture("FalconForCausalLM", "multi-query attention", tied=True),
    Architecture("LlamaForCausalLM", "grouped-query attention"),
    Architecture("LlamaForCausalLM", "YaRN positions", options={"rope_parameters": YARN}),
    Architecture("LlamaForCausalLM", "tied in config.json", tied=True, options={"tie_word_embeddings": True}),
    Architecture("MistralForCausalLM", "sliding window", options=WINDOW),
    Architecture("MixtralForCausalLM", "mixture of experts", options={"num_local_experts": 4}),
    Architecture("Qwen2ForCausalLM", "attention biases"),
    Architecture("Qwen2MoeForCausalLM", "mixture of experts, shared expert", options=EXPERTS),
    Architecture("Qwen3ForCausalLM", "norms of queries and keys", options=HEADS),
    Architecture("GemmaForCausalLM", "scaled input embedding", tied=True, options=HEADS),
    Architecture("Gemma2ForCausalLM", "cap, sliding window", tied=True, cap=30.0, options=HEADS | WINDOW),
    Architecture("Gemma3ForCausalLM", "sliding window", tied=True, options=HEADS | WINDOW),
    Architecture("RecurrentGemmaForCausalLM", "recurrent, cap", tied=True, cap=30.0, options=RECURRENT),
    Architecture("NanoChatForCausalLM", "cap, no weights in norms", cap=15.0, options={"num_key_value_heads": 4}),
    Architecture("PhiForCausalLM", "parallel blocks", bias=True),
    Architecture("Phi3ForCausalLM", "fused projections"),
    Architecture("Olmo2ForCausalLM", "norms after the blocks"),
    Architecture("OlmoeForCausalLM", "mixture of experts", options=EXPERTS),
    Architecture("GptOssForCausalLM", "mixture of experts, sinks", options=HEADS | {"num_local_experts": 4}),
    Architecture("StableLmForCausalLM", "partly rotary positions"),
    Architecture("Starcoder2ForCausalLM", "biases", tied=True),
    Architecture("SmolLM3ForCausalLM", "layers without positions", tied=True),
    Architecture("CohereForCausalLM", "logit scale, parallel blocks", tied=True, scale=0.0625),
    Architecture("Cohere2ForCausalLM", "logit scale, sliding window", tied=True, scale=0.0625, options=WINDOW),
    Architecture("GraniteForCausalLM", "logit scale, other multipliers", scale=1 / 6, options={"logits_scaling": 6.0}),
    Architecture("HyperCLOVAXForCausalLM", "logit scale", scale=0.3, options={"logits_scaling": 0.3}),
    Architecture("FalconH1ForCausalLM", "hybrid (Mamba-2), scale", scale=0.04, options=MAMBA),
    Architecture("MambaForCausalLM", "recurrent", tied=True, options={"state_size": 8}),
    Architecture("Mamba2ForCausalLM", "recurrent", options=MAMBA2),
    Architecture("RwkvForCausalLM", "recurrent", options={"attention_hidden_size": 32}),
    Architecture("xLSTMForCausalLM", "recurrent, cap", cap=30.0, options={"num_heads": 4}),
    Architecture("JambaForCausalLM", "hybrid (Mamba), mixture of experts", options={"num_experts": 4}),
    Architecture("Lfm2ForCausalLM", "hybrid (convolutions)", tied=True),
    Architecture("DeepseekV3ForCausalLM", "latent attention, experts, multi-token-prediction layer", options=LATENT),
    Architecture("BertLMHeadModel", "`--model-arg is_decoder=true`", tied=True, bias=True, options=DECODER),
    Architecture("ModernBertDecoderForCausalLM", "decoder of a family of encoders", tied=True, bias=True),
    Architecture("T5ForConditionalGeneration", ENCODER_DECODER, refused=True),
    Architecture("BartForConditionalGeneration", ENCODER_DECODER, refused=True),
    Architecture("BertForMaskedLM", MASKED, refused=True),
    Architecture("RobertaForMaskedLM", MASKED, refused=True),
    Architecture("ModernBertForMaskedLM", MASKED, refused=True),
)  # fmt: skip
