"""Classifier of noisy text from a model of labelled rows: p(class | z_t)
at the label's position.
"""

from collections.abc import Collection

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.backbones.layers.inference_weights import is_plain
from unmask.errors import UnmaskError
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.shapes import At, LogProbabilities, Tokens


class TokenClassifier:
    """log p(label | z_t) among `labels`: the prediction at column `column`,
    where the label is masked.
    """

    def __init__(
        self, method: Method, label_id: int, labels: Collection[int], column: int = 0
    ) -> None:
        embedding = getattr(method.backbone, "embedding", None)
        if not isinstance(method, MaskedDiffusion) or not isinstance(embedding, nn.Embedding):
            raise UnmaskError(
                "this guide cannot classify a noisy text: "
                "choose a masked diffusion model with token embeddings"
            )
        self._method, self._embedding = method, embedding
        self._labels = sorted(labels)
        self._index = self._labels.index(label_id)
        self._column = column

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """log p(label | z_t) of each row."""
        z = z_t.clone()
        z[:, self._column] = self._method.vocabulary.mask_id
        backbone, labels = self._method.backbone, self._labels
        h = backbone.features(z, self._method.condition(t, z.device))[:, self._column]
        head = backbone.head
        if is_plain(head):
            bias = None if head.bias is None else head.bias[labels]
            logits = nn.functional.linear(h, head.weight[labels], bias)
        else:
            logits = head(h)[:, labels]
        return logits.log_softmax(-1)[:, self._index]

    def soft(self, probabilities: Float[Tensor, "rows length vocabulary"]) -> Float[Tensor, "rows"]:
        """log p(label) of rows whose tokens are uncertain, differentiable in their probabilities.

        The network reads the mean embedding of each position.

        Args:
            probabilities: Distribution of the token at each position.

        Returns:
            log p(label) of each row.
        """
        weight = self._embedding.weight
        column = torch.arange(probabilities.shape[1], device=weight.device) == self._column

        def replace(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            return torch.where(column[:, None], output, probabilities.to(weight.dtype) @ weight)

        hook = self._embedding.register_forward_hook(replace)
        try:
            start = torch.zeros(len(probabilities), dtype=torch.float64)
            return self(probabilities.argmax(-1), start)
        finally:
            hook.remove()

    def slopes(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """Gradient of log p(label | z_t) in the one-hot tokens at chosen positions.

        It is the gradient in the embeddings, times the embedding matrix.

        Args:
            z_t: Token ids with masks.
            t: Time of each row.
            at: Rows and columns of the positions.

        Returns:
            The gradient, [positions, vocabulary].
        """
        embeddings: list[Tensor] = []

        def capture(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            embeddings.append(output.detach().requires_grad_())
            return embeddings[0]

        # Samplers run in inference mode, whose tensors carry no gradient. Hence the clones of z_t
        # and t.
        with torch.inference_mode(False), torch.enable_grad():
            hook = self._embedding.register_forward_hook(capture)
            try:
                log_p = self(z_t, t.clone())
            finally:
                hook.remove()
            (gradient,) = torch.autograd.grad(log_p.sum(), embeddings[0])
        return gradient[at] @ self._embedding.weight.detach().t()
