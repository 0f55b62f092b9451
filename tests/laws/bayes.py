"""A network of uniform tokens that is Bayes' rule."""

import torch
from kit import Language
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone


class Bayes(Backbone):
    """A network that computes log p(x_l | z_t) from the language, with or without the token z_l itself.

    It knows that the first `given` tokens are not noised, as after training on pairs.
    """

    time_conditioning = True

    def __init__(self, language: Language, leave_one_out: bool, given: int = 0) -> None:
        super().__init__(None, language.vocabulary)
        self.language, self.leave_one_out, self.given = language, leave_one_out, given
        self.head = nn.Linear(language.size + 1, language.size + 1).double()
        nn.init.eye_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.embedding = nn.Embedding(language.size + 1, 1)  # the curriculum of duo replaces it

    def features(
        self, z: Tensor, sigma: Tensor | None = None, at: Tensor | None = None, **rest: object
    ) -> Tensor:
        x, size = self.language.sequences, self.language.size
        alpha = torch.exp(-sigma.double())[:, None, None].repeat(1, 1, x.shape[1])
        alpha[..., : self.given] = 1 - 1e-12  # 1 would divide by 0 below
        seen = (
            alpha * (z[:, None] == x) + (1 - alpha) / size
        )  # q(z_l | x_l): [rows, sequences, length]
        one_hot = nn.functional.one_hot(x, size + 1).double()
        mass = self.language.table * seen.prod(-1)
        if self.leave_one_out:
            marginals = torch.einsum("rs,rsl,slv->rlv", mass, 1 / seen, one_hot)
        else:
            marginals = torch.einsum("rs,slv->rlv", mass, one_hot)
        h = (marginals / marginals.sum(-1, keepdim=True)).log().clamp(min=-1e4)
        return h if at is None else h.flatten(0, 1)[at]
