"""Sequence classifiers that start from a trained model, and their predictions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.bundle import Bundle
from unmask.config.components import build_method
from unmask.config.run_config import Choice
from unmask.data.rows.sentence_rows import Sentence, SentenceRows, sentence_rows
from unmask.errors import UnmaskError
from unmask.methods.method import Method
from unmask.methods.sequence_classifier import SequenceClassifier, as_classifier
from unmask.randomness import torch_seed
from unmask.training.fine_tune import FineTuning, Fitted, fit, predict
from unmask.training.lora import add_adapters, merged, remove_adapters
from unmask.training.training_config import LoraConfig

_HEAD = "backbone.head."


@dataclass(frozen=True)
class Classification:
    """The class of a text with its probability, or the number that a regression predicts."""

    label: str | None  # None for a regression
    score: float  # probability of the class, or the predicted number
    logits: tuple[float, ...]


def classifier_of(bundle: Bundle, classes: int, *, seed: int = 0, **settings: Any) -> Bundle:
    """A sequence classifier with the network of a model and a fresh head.

    Args:
        bundle: The model to start from; it is not changed.
        classes: Number of classes; 1 is a regression.
        seed: Seed of the new head.
        settings: Other fields of `SequenceClassifier.Config`, such as pooling. The default of
            pooling is `last` for causal networks and `cls` for bidirectional ones; that of pooler
            is True with `cls`.

    Returns:
        The classifier, on the device of the model.

    Example:
        >>> classifier = classifier_of(model, 2, pooling="mean")
        >>> classifier.method.outputs
        2
    """
    causal = bundle.method.backbone.causal
    pooling = settings.setdefault("pooling", "last" if causal else "cls")
    settings.setdefault("pooler", pooling == "cls")
    settings.setdefault("separators", bundle.tokenizer.pair_separators)
    try:
        chosen = SequenceClassifier.Config(classes=classes, **settings)
    except TypeError as error:
        raise UnmaskError(f"a sequence classifier has no such setting: {error}") from None
    config = replace(bundle.config, method=Choice("sequence_classifier", chosen))
    with torch_seed(seed):
        method = build_method(config, bundle.tokenizer.vocabulary)
    start = _start(bundle.method)
    own = {
        name: start.get(name, tensor) if not name.startswith(_HEAD) else tensor
        for name, tensor in method.state_dict().items()
    }
    method.load_state_dict(own)
    return Bundle(method.to(bundle.device), bundle.tokenizer, config, bundle.defaults)


@torch.no_grad()
def _start(method: Method) -> dict[str, Tensor]:
    """The weights of a model; the first layer of one that reads vectors becomes
    an embedding of tokens.
    """
    found = method.state_dict()
    if method.capabilities.latent:
        tokens = torch.arange(method.vocabulary.size, device=method.device)
        inputs = method.clean_inputs(tokens[None])[0]
        found["backbone.embedding.weight"] = method.backbone.embedding(inputs)
    return found


def rows_for(
    bundle: Bundle, sentences: Sequence[Sentence], length: int | None = None
) -> SentenceRows:
    """Rows of sentences or of pairs for a classifier.

    Args:
        bundle: The classifier.
        sentences: Texts, or pairs of texts.
        length: Most tokens of a row; by default the length of the model's rows.

    Returns:
        The rows.
    """
    wanted = bundle.length if length is None else length
    longest = min(wanted, bundle.method.backbone.longest or bundle.length)
    separators = _classifier(bundle).config.separators
    return sentence_rows(sentences, bundle.tokenizer, longest, separators)


def fine_tune(
    bundle: Bundle,
    sentences: Sequence[Sentence],
    targets: Sequence[int] | Sequence[float],
    settings: FineTuning | None = None,
    *,
    length: int | None = None,
    score: Callable[[], float] | None = None,
    lora: LoraConfig | None = None,
) -> Fitted:
    """Trains a classifier of `classifier_of` in place.

    Args:
        bundle: The classifier.
        sentences: Texts, or pairs of texts.
        targets: Class number of each text, or its score.
        settings: Settings of the training.
        length: Most tokens of a row.
        score: Measures the classifier after each epoch, for early stopping; higher is better.
        lora: Trains adapters of this rank in place of the network's weights, and merges them.

    Returns:
        Losses and scores of the epochs.
    """
    method, settings = _classifier(bundle), settings or FineTuning()
    rows = rows_for(bundle, sentences, length)
    method.backbone.thaw()
    if lora is None or not lora.rank:
        return fit(method, rows, targets, settings, score)
    add_adapters(method, lora)
    try:
        fitted = fit(method, rows, targets, settings, score)
        weights = merged(method.state_dict(), lora)
    finally:
        remove_adapters(method)
    method.load_state_dict(weights)
    return fitted


def class_logits(
    bundle: Bundle,
    sentences: Sequence[Sentence],
    *,
    length: int | None = None,
    batch: int = 64,
    precision: str = "fp32",
) -> Float[Tensor, "rows outputs"]:
    """Logits of the classes of each text, or its predicted number.

    Args:
        bundle: A classifier.
        sentences: Texts, or pairs of texts.
        length: Most tokens of a row.
        batch: Rows of a forward pass.
        precision: Precision of the matrix products.

    Returns:
        The logits in float32, on the CPU.
    """
    return predict(_classifier(bundle), rows_for(bundle, sentences, length), batch, precision)


def classify(
    bundle: Bundle,
    sentences: Sequence[Sentence],
    *,
    length: int | None = None,
    batch: int = 64,
    precision: str = "fp32",
) -> list[Classification]:
    """The class of each text, or its predicted number.

    Args:
        bundle: A classifier.
        sentences: Texts, or pairs of texts.
        length: Most tokens of a row.
        batch: Rows of a forward pass.
        precision: Precision of the matrix products.

    Returns:
        One result for each text.
    """
    method = _classifier(bundle)
    logits = class_logits(bundle, sentences, length=length, batch=batch, precision=precision)
    found = [tuple(row) for row in logits.tolist()]
    if method.regression:
        return [Classification(None, row[0], row) for row in found]
    names, scores = class_names(bundle), logits.softmax(-1)
    return [
        Classification(names[best], float(share[best]), row)
        for row, share, best in zip(found, scores, logits.argmax(-1).tolist(), strict=True)
    ]


def class_names(bundle: Bundle) -> list[str]:
    """The names of the classes; their numbers if they have no names."""
    method = _classifier(bundle)
    known = method.config.names or tuple(bundle.tokenizer.labels)
    return list(known) if len(known) == method.outputs else [str(i) for i in range(method.outputs)]


def _classifier(bundle: Bundle) -> SequenceClassifier:
    method = as_classifier(bundle.method)
    if method is None:
        raise UnmaskError(
            f"a model of method {bundle.config.method.name} has no classes: "
            "make a classifier with classifier_of"
        )
    return method
