"""Tokenizer files for the AutoTokenizer of transformers, with special tokens, BOS and EOS."""

import json
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

_NAMES = {"mask": "[MASK]", "pad": "[PAD]", "bos": "[BOS]", "eos": "[EOS]"}


def tokenizer_files(
    tokenizer: Tokenizer,
    length: int,
    types: bool = False,
    ends: bool = True,
    tokens: int | None = None,
) -> dict[str, str]:
    """The files for AutoTokenizer, name to content; empty for a tokenizer without a backend.

    With `types`, AutoTokenizer gives the token types of pairs too, which BERT reads. With `ends`, it
    adds BOS and EOS to a text as in training. Special tokens have ids below `tokens`.
    """
    backend = tokenizer.backend()
    if backend is None:
        return {}
    named = _add_special(backend, tokenizer, tokens)
    v = tokenizer.vocabulary
    if ends and v.bos_id is not None and v.eos_id is not None:  # rows begin and end as in training
        bos, eos, separators = named["bos"], named["eos"], tokenizer.pair_separators
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos}",
            pair=f"{bos} $A{f' {eos}' * separators} $B:1 {eos}:1",
            special_tokens=[(bos, v.bos_id), (eos, v.eos_id)],
        )
    special = {f"{role}_token": name for role, name in named.items()}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": ["input_ids", *["token_type_ids"] * types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    if tokenizer.chat_template is not None:
        settings["chat_template"] = tokenizer.chat_template
    return {
        "tokenizer.json": backend.to_str() + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=1) + "\n",
        "special_tokens_map.json": json.dumps(special, indent=1) + "\n",
    }


def _add_special(backend: Backend, tokenizer: Tokenizer, tokens: int | None) -> dict[str, str]:
    """Adds a token for every special id and returns the token of each role."""
    v = tokenizer.vocabulary
    roles = {"mask": v.mask_id, "pad": v.pad_id, "bos": v.bos_id, "eos": v.eos_id}
    ids = {role: id for role, id in roles.items() if id is not None and id < (tokens or v.size)}
    names = {id: _NAMES[role] for role, id in ids.items()}
    names |= {id: f"[{label}]" for label, id in tokenizer.labels.items()}
    for id in sorted(names):
        name = backend.id_to_token(id) or _free(backend, names[id])
        # [MASK] includes the space before it, like the token that replaces it
        takes_space = id == v.mask_id and tokenizer.leading_space
        backend.add_special_tokens([AddedToken(name, lstrip=takes_space, special=True)])
        if backend.token_to_id(name) != id:
            raise UnmaskError(
                f"the tokenizer cannot be written for transformers: it has no token {id - 1} before {name}"
            )
    return {role: str(backend.id_to_token(id)) for role, id in ids.items()}


def _free(backend: Backend, name: str) -> str:
    """The name, in angle brackets if a token has it already."""
    while backend.token_to_id(name) is not None:
        name = f"<{name}>"
    return name
