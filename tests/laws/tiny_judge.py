"""A causal language model of the transformers library, random and tiny,
with a tokenizer of its own.
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 32
SENTENCE = "the cat sat on a mat and then one dog ran to the old red hill by the sea"
PREFIX = "<|endoftext|>"


def fast_tokenizer(**special: str):
    """Byte-level BPE; <|endoftext|> has an id, and <other> as well."""
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[PREFIX, "<other>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([SENTENCE] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def save_judge(folder: Path, seed: int = 0) -> Path:
    """GPT-2's architecture with two layers, in safetensors."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = fast_tokenizer(eos_token=PREFIX)
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.5,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_gguf(file: Path, without: str = ""):
    """Llama's architecture in a GGUF file, with the same tokenizer; returns the network."""
    import gguf
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = fast_tokenizer(eos_token=PREFIX)
    heads, width = 2, 32
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=CONTEXT,
        initializer_range=0.3, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    for weights in network.parameters():
        weights.data = weights.data.half().float()  # what half precision can hold
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(64)
    writer.add_block_count(2)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokenizer))
    writer.add_tokenizer_model("gpt2")
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in (PREFIX, "<other>") else 1 for token, _ in vocabulary])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in network.state_dict().items():
        if "q_proj" in name or "k_proj" in name:  # llama.cpp turns pairs of neighbours
            tensor = tensor.view(heads, 2, -1, width).transpose(1, 2).reshape(width, width)
        if name != without:
            writer.add_tensor(names.get_name(name, (".weight",)), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return network
