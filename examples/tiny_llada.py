"""Writes a tiny random LLaDA with a chat template, and 500 chats: python examples/tiny_llada.py"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mdm_mask|>"]
TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASKED = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
folder, width, inner = Path("llada-tiny"), 64, 128
folder.mkdir(exist_ok=True)
names = [*NAMES, *sorted(pre_tokenizers.ByteLevel.alphabet())]
tokenizer = Tokenizer(models.BPE({name: n for n, name in enumerate(names)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(NAMES)
tokenizer.save(str(folder / "tokenizer.json"))
roles = {"eos_token": NAMES[0], "mask_token": NAMES[3], "chat_template": TURN + ASKED}
(folder / "tokenizer_config.json").write_text(json.dumps(roles))
config = {"model_type": "llada", "d_model": width, "n_layers": 2, "n_heads": 4}
config |= {"mlp_hidden_size": inner, "max_sequence_length": 256, "mask_token_id": 3}
config |= dict.fromkeys(("vocab_size", "embedding_size"), len(names)) | {"weight_tying": False}
(folder / "config.json").write_text(json.dumps(config))
block = dict.fromkeys(("q_proj", "k_proj", "v_proj", "attn_out"), (width, width))
block |= {"ff_proj": (inner, width), "up_proj": (inner, width), "ff_out": (width, inner)}
block |= {"attn_norm": (width,), "ff_norm": (width,)}
shapes = {"wte": (len(names), width), "ff_out": (len(names), width), "ln_f": (width,)}
shapes |= {f"blocks.{n}.{name}": shape for n in range(2) for name, shape in block.items()}
shapes = {f"model.transformer.{name}.weight": shape for name, shape in shapes.items()}
torch.manual_seed(0)
weights = {n: torch.ones(s) if len(s) == 1 else torch.randn(s) / 8 for n, s in shapes.items()}
save_file(weights, folder / "model.safetensors")
talks = [[("user", f"Spell {n}."), ("assistant", " ".join(str(n)))] for n in range(500)]
talks = [[{"role": role, "content": text} for role, text in talk] for talk in talks]
Path("chats.jsonl").write_text("".join(json.dumps({"messages": t}) + "\n" for t in talks))
print(Path("questions.txt").write_text("Spell 42.\n"), "bytes of a question, and 500 chats")
