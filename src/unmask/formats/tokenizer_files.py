"""Tokenizers as files that transformers' AutoTokenizer reads, special tokens and frame included."""

import json
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

_NAMES = {"mask": "[MASK]", "pad": "[PAD]", "bos": "[BOS]", "eos": "[EOS]"}


def tokenizer_files(tokenizer: Tokenizer, length: int) -> dict[str, str]:
    """The text of tokenizer.json and of what goes with it; nothing for a tokenizer without a backend."""
    backend = tokenizer.backend()
    if backend is None:
        return {}
    named = _add_special(backend, tokenizer)
    v = tokenizer.vocabulary
    if v.bos_id is not None and v.eos_id is not None:  # rows begin and end as in training
        bos, eos = named["bos"], named["eos"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos}", special_tokens=[(bos, v.bos_id), (eos, v.eos_id)]
        )
    special = {f"{role}_token": name for role, name in named.items()}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    return {
        "tokenizer.json": backend.to_str() + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=1) + "\n",
        "special_tokens_map.json": json.dumps(special, indent=1) + "\n",
    }


def _add_special(backend: Backend, tokenizer: Tokenizer) -> dict[str, str]:
    """Gives every special id a token, in the order of ids; the name of each role."""
    v = tokenizer.vocabulary
    roles = {"mask": v.mask_id, "pad": v.pad_id, "bos": v.bos_id, "eos": v.eos_id}
    wanted = {id: _NAMES[role] for role, id in roles.items() if id is not None}
    wanted |= {id: f"[{label}]" for label, id in tokenizer.labels.items()}
    for id in sorted(wanted):
        name = backend.id_to_token(id) or _free(backend, wanted[id])
        # a gap takes the space before it, as the token that fills it does
        swallows = id == v.mask_id and tokenizer.leading_space
        backend.add_special_tokens([AddedToken(name, lstrip=swallows, special=True)])
        if backend.token_to_id(name) != id:
            raise UnmaskError(
                f"the tokenizer has no token {id - 1} to put {name} behind: it cannot be written for "
                "transformers"
            )
    return {role: str(backend.id_to_token(id)) for role, id in roles.items() if id is not None}


def _free(backend: Backend, name: str) -> str:
    """The name, or one like it that no token has yet."""
    while backend.token_to_id(name) is not None:
        name = f"<{name}>"
    return name
