"""A trained method with its tokenizer and configuration."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from unmask.config.run_config import RunConfig, defaults, to_dict
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.extension import attachments
from unmask.files.tensors import hash_tensors
from unmask.methods.method import Method
from unmask.runtime.device import PRECISIONS


@dataclass(frozen=True, eq=False)
class Bundle:
    """The content of a model folder; `generation`, `likelihood` and `formats` work on it.

    `defaults` are the options of `generate` that apply where a caller gives none. `attachments` are
    the trained parts of extensions in the folder, by name, such as the policy of a sampler.
    """

    method: Method
    tokenizer: Tokenizer
    config: RunConfig
    defaults: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.method.eval()

    @property
    def length(self) -> int:
        """The longest row that the network was trained on, in tokens."""
        return self.config.data.length

    @property
    def conditional(self) -> bool:
        """True after training on pairs: a prompt is then a source, and the text its target."""
        return self.config.data.paired

    @property
    def device(self) -> torch.device:
        """The device that holds the network."""
        return next(self.method.parameters()).device

    @property
    def precision(self) -> str:
        """The precision that the network computes in, by name."""
        dtype = self.method.serving.dtype
        return next(name for name, each in PRECISIONS.items() if each == dtype)

    @property
    def digest(self) -> str:
        """A hash of weights, tokenizer and the settings that differ from their defaults.

        A new setting of a later version thus changes no hash, and a changed default does. The hash
        of the held-out text is left out.
        """
        config = to_dict(self.config)
        del config["data"]["held_out_digest"]
        content = [_changed(config, defaults(self.config)), self.tokenizer.fingerprint]
        state = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        hash_tensors(state, self.method)
        return state.hexdigest()[:16]

    def check_attachment(self, name: str, digest: str) -> None:
        """Raises an error if an attachment was trained for another model.

        Args:
            name: the name of the attachment.
            digest: digest of the model that it was trained for; empty for any model.
        """
        if digest and digest != self.digest:
            raise UnmaskError(
                f"the {name.replace('_', ' ')} was trained for another model: "
                f"{attachments()[name].remedy}"
            )

    def refuse_pairs(self, advice: str) -> None:
        """Raises an error if the model was trained on pairs.

        Args:
            advice: the remedy, the end of the message.
        """
        if self.conditional:
            raise UnmaskError(f"a model of pairs writes targets for sources: {advice}")


def _changed(tree: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a tree of settings that differ from the usual ones."""
    found = {}
    for name, value in tree.items():
        if name not in usual:
            found[name] = value
        elif value != usual[name]:
            nested = isinstance(value, Mapping) and isinstance(usual[name], Mapping)
            found[name] = _changed(value, usual[name]) if nested else value
    return found
