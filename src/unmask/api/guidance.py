"""A label and its weight: what a row begins with, and the denoiser that follows it."""

from typing import TYPE_CHECKING

from unmask.api.sampling import Sampling
from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError, unknown
from unmask.methods.token_classifier import TokenClassifier
from unmask.samplers.guidance import ClassifierFree, ClassifierGuided

if TYPE_CHECKING:
    from unmask.api.model import Model


def first_tokens(model: "Model", sampling: Sampling) -> list[int]:
    """What rows begin with: the class, unless another model knows it better, or BOS."""
    label_id, bos = _label_id(model, sampling), model.tokenizer.vocabulary.bos_id
    first = bos if label_id is None or sampling.guide is not None else label_id
    return [] if first is None else [first]


def guided(model: "Model", sampling: Sampling) -> Denoiser:
    """The model's denoiser, guided towards the label."""
    denoise, label_id = model.method.denoiser(), _label_id(model, sampling)
    weight = float(sampling.guidance)
    if label_id is None or (sampling.guide is None and weight == 1):
        return denoise
    if sampling.guide is None:
        assert model.tokenizer.vocabulary.bos_id is not None
        return ClassifierFree(denoise, model.tokenizer.vocabulary.bos_id, weight)
    labels = model.tokenizer.labels.values()
    classifier = TokenClassifier(sampling.guide.method, label_id, labels)
    return ClassifierGuided(denoise, classifier, weight)


def _label_id(model: "Model", sampling: Sampling) -> int | None:
    """The class token that was asked for, if the model has it."""
    label, guide = sampling.label, sampling.guide
    if label is None:
        if guide is not None or sampling.guidance != 1:
            raise UnmaskError("guidance needs a label to guide towards")
        return None
    labels = model.tokenizer.labels
    if not labels:
        raise UnmaskError("this model was trained without labels: train it with data.label_field")
    if label not in labels:
        raise unknown("label", label, labels)
    if guide is not None and guide.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError("the guide has another tokenizer than the model: they cannot be combined")
    if guide is not None and guide.device != model.device:
        raise UnmaskError(f"the guide is on {guide.device} and the model on {model.device}")
    return labels[label]
