"""Tiny models of decoder families with a chat template."""

import json
from pathlib import Path

from llama_models import reference
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CHATML = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n\n{{ m.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}"
)
TALK = [
    {"role": "system", "content": "Be kind – or not."},
    {"role": "user", "content": " What is 1+1? <|im_end|>"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": 'And "2"+2?'},
]
NAMES = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|mask|>"]


def write_tokenizer(folder: Path, template: str | None, **settings: str | None) -> None:
    """A byte-level tokenizer of 261 ids, the special tokens first."""
    names = [*NAMES, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(NAMES)
    backend.save(str(folder / "tokenizer.json"))
    usual = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<|mask|>"}
    tree = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(tree | usual | settings))


def write_model(folder: Path, family: str, template: str | None = CHATML, **settings) -> Path:
    """Writes a tiny model of a family: an autoregressive one, whole rows with and without shift, or blocks."""
    base = {"Dream": "qwen2", "sdar": "qwen3", "Fast_dLLM_Qwen": "qwen2"}.get(family, "llama")
    folder.mkdir(exist_ok=True)
    reference(base, vocab_size=261, max_position_embeddings=256).save_pretrained(folder)
    kind = {"llada": "a2d-llama"}.get(family, family)  # written back, it is a LLaDA
    more = {} if family == "llama" else {"model_type": kind, "mask_token_id": 4}
    more |= {"sdar": {"block_size": 4}, "Fast_dLLM_Qwen": {"bd_size": 8}}.get(family, {})
    tree = json.loads((folder / "config.json").read_text()) | more
    (folder / "config.json").write_text(json.dumps(tree))
    write_tokenizer(folder, template, **settings)
    return folder
