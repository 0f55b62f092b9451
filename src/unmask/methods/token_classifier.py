"""A model of labelled rows as a classifier of noisy text: it knows p(class | z_t) at the first place."""

from collections.abc import Collection

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.shapes import At, LogProbabilities, Tokens


class TokenClassifier:
    """log p(label | z_t) among `labels`: x_theta at the class's own place, MASK standing there."""

    def __init__(
        self, method: Method, label_id: int, labels: Collection[int], place: int = 0
    ) -> None:
        embedding = getattr(method.backbone, "embedding", None)
        if not isinstance(method, MaskedDiffusion) or not isinstance(embedding, nn.Embedding):
            raise UnmaskError(
                "only a diffusion model with token embeddings can tell the class of a noisy text: "
                "guide with one"
            )
        self._method, self._embedding = method, embedding
        self._labels = sorted(labels)
        self._index = self._labels.index(label_id)
        self._place = place

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """log p(label | z_t) of each row."""
        z = z_t.clone()
        z[:, self._place] = self._method.vocabulary.mask_id
        backbone, labels = self._method.backbone, self._labels
        h = backbone.features(z, self._method.condition(t, z.device))[:, self._place]
        logits = nn.functional.linear(h, backbone.head.weight[labels], backbone.head.bias[labels])
        return logits.log_softmax(-1)[:, self._index]

    def slopes(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """Gradient with respect to the one-hot tokens at chosen places: that of their embeddings, projected."""
        read: list[Tensor] = []

        def hold(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            read.append(output.detach().requires_grad_())
            return read[0]

        # samplers run in inference mode, whose tensors no gradient may pass: hence the clones, here and above
        with torch.inference_mode(False), torch.enable_grad():
            hook = self._embedding.register_forward_hook(hold)
            try:
                log_p = self(z_t, t.clone())
            finally:
                hook.remove()
            (gradient,) = torch.autograd.grad(log_p.sum(), read[0])
        return gradient[at] @ self._embedding.weight.detach().t()
