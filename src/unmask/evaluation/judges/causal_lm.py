"""A causal language model of the transformers library as a judge, with its own tokenizer."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional as F

from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import JudgeScores, Sample
from unmask.files.tensors import hash_tensors

CONTEXT = 1024  # tokens of a window, prefix included: the context of GPT-2
LOGITS = 2**28  # largest number of logits in one pass: 1 GiB in fp32
_USUAL = "<|endoftext|>"  # the token before a text in the training of GPT-2 and its successors


@dataclass(frozen=True)
class Window:
    """One window of a text: the prefix, tokens that are only context, and tokens to score."""

    text: int  # number of the text
    ids: list[int]
    overlap: int  # context tokens after the prefix, which the window before scored


@dataclass(frozen=True)
class Read:
    """Scores of a text: nats and end of every token, and a feature vector for MAUVE."""

    nats: Float64[Tensor, "tokens"]
    ends: list[int]  # end of each token, in characters from the start of the text
    feature: Float[Tensor, "width"]  # last hidden state at the last token


class CausalJudge:
    """A causal language model as judge. A long text is scored in windows that overlap by half.

    A prefix token precedes each window; it is not scored.
    """

    certificate = "exact"
    reads_text = True
    precision = "fp32"

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        name: str,
        prefix: str | None = None,
        logits: int = LOGITS,
    ) -> None:
        self.network, self.tokenizer, self.name = network.eval(), tokenizer, name
        self.prefix = usual_prefix(tokenizer, name) if prefix is None else prefix
        known: dict[str, int] = tokenizer.get_vocab()
        if self.prefix not in known:
            raise UnmaskError(
                f"the judge {name} has no token {self.prefix!r} as prefix: give one of its vocabulary"
            )
        self._prefix_id = known[self.prefix]
        config = network.config.get_text_config()
        self.context = min(CONTEXT, getattr(config, "max_position_embeddings", CONTEXT))
        self._tokens_per_pass = max(logits // config.vocab_size, 1)

    @cached_property
    def digest(self) -> str:
        """A hash of prefix, context, vocabulary, configuration and weights."""
        config = self.network.config.to_dict().items()
        settings = {name: value for name, value in config if not name.startswith("_")}  # no paths
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        described = json.dumps(
            [self.prefix, self.context, vocabulary, settings], sort_keys=True, default=str
        )
        state = hashlib.sha256(described.encode())
        hash_tensors(state, self.network)
        return state.hexdigest()[:16]

    def read(self, samples: Sequence[Sample], seed: int = 0) -> JudgeScores:
        """The scores of texts in the judge's own tokens; `seed` has no effect."""
        texts = self.read_texts([sample.text for sample in samples])
        return JudgeScores(
            nats=torch.stack([text.nats.sum() for text in texts]),
            tokens=torch.tensor([len(text.nats) for text in texts]),
            features=torch.stack([text.feature for text in texts]),
        )

    def read_texts(self, texts: Sequence[str]) -> list[Read]:
        """The scores of every token of every text; a text's scores do not depend on the others."""
        encoded = [self._encoded(text) for text in texts]
        windows = [
            window
            for number, (ids, _) in enumerate(encoded)
            for window in windows_of(number, ids, self._prefix_id, self.context)
        ]
        nats: list[dict[int, Tensor]] = [{} for _ in texts]
        features: dict[int, Tensor] = {}
        for index, scored, feature in self._forward(windows):
            window = windows[index]
            nats[window.text][index] = scored
            if window.overlap == 0:  # MAUVE takes the first window of a long text
                features[window.text] = feature
        return [
            Read(torch.cat([parts[index] for index in sorted(parts)]), ends, features[number])
            for number, (parts, (_, ends)) in enumerate(zip(nats, encoded, strict=True))
        ]

    def _encoded(self, text: str) -> tuple[list[int], list[int]]:
        """The tokens of a text and their ends in characters.
        The names of special tokens are plain text.
        """
        encoded = self.tokenizer(
            text.encode("utf-8", "replace").decode(),  # replaces lone surrogates
            add_special_tokens=False,
            split_special_tokens=True,
            return_offsets_mapping=True,
            verbose=False,
        )
        return list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]

    @torch.inference_mode()
    def _forward(self, windows: Sequence[Window]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of each window, the nats of the tokens that it scores,
        and its last hidden state.
        """
        order = sorted(range(len(windows)), key=lambda index: len(windows[index].ids))
        while order:
            longest = len(windows[order[-1]].ids)
            size = max(self._tokens_per_pass // longest, 1)
            part, order = order[-size:], order[:-size]
            rows = [torch.tensor(windows[index].ids) for index in part]
            x = torch.nn.utils.rnn.pad_sequence(
                rows, batch_first=True, padding_value=self._prefix_id
            )
            lengths = torch.tensor([len(row) for row in rows])
            x, attended = (
                tensor.to(self.network.device)
                for tensor in (x, (torch.arange(x.shape[1]) < lengths[:, None]).long())
            )
            output = self.network(
                input_ids=x, attention_mask=attended, output_hidden_states=True, use_cache=False
            )
            for row, index in enumerate(part):
                end, overlap = len(rows[row]), windows[index].overlap
                logits = output.logits[row, overlap : end - 1].float()
                nats = F.cross_entropy(logits, x[row, overlap + 1 : end], reduction="none")
                feature = output.hidden_states[-1][row, end - 1].float().cpu()
                yield index, nats.double().cpu(), feature


def windows_of(text: int, ids: list[int], prefix: int, context: int) -> Iterator[Window]:
    """The windows of a text. Each one but the first repeats the last half of the
    one before as context.
    """
    body = context - 1
    yield Window(text, [prefix, *ids[:body]], 0)
    step = max(body // 2, 1)
    for done in range(body, len(ids), step):
        start = done + step - body
        yield Window(text, [prefix, *ids[start : done + step]], done - start)


def usual_prefix(tokenizer: Any, name: str) -> str:
    """The default prefix token: <|endoftext|> if the vocabulary has it, else BOS, else EOS."""
    known = tokenizer.get_vocab()
    for token in (_USUAL, tokenizer.bos_token, tokenizer.eos_token):
        if token in known:
            return str(token)
    raise UnmaskError(f"the judge {name} has neither BOS nor EOS as prefix: give --judge-prefix")
