"""Base of the methods that diffuse vectors: codes of the tokens, noise levels, network and denoiser.

A token x has a code vector E[x]. The forward process is z_t = alpha E[x] + sigma noise. A method chooses codes,
noise schedule, network and loss. Samplers read it through `LatentDenoiser`.
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.layers.transformer_block import zero_linear
from unmask.extensions.vectors.diffusion.gaussian import GammaSchedule, signal
from unmask.methods.method import Capabilities, Method
from unmask.runtime.device import to_device
from unmask.shapes import At, LogProbabilities, Times, Tokens, Valid

Vectors = Float[Tensor, "rows length width"]
Outputs = Float[Tensor, "rows length outputs"]  # of the head
TokenLogProbs = Float[Tensor, "rows length vocabulary"]


class FixedCodes(nn.Module):
    """Code vectors that are not learned, and not saved with the weights."""

    weight: Tensor

    def __init__(self, codes: Float[Tensor, "vocabulary width"]) -> None:
        super().__init__()
        self.register_buffer("weight", codes, persistent=False)


class VectorMethod(Method):
    """A method that diffuses code vectors: codes, noise schedule, and a network between adapter and head."""

    capabilities = Capabilities(states="vectors", noise_level=True)
    # share of the training rows whose network input has a first estimate
    self_conditioning: float = 0.0

    def __init__(self, config: Any, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.gammas = self.gamma_schedule()
        self.codebook = self.build_codes()
        width, features = self.codes.shape[1], self.backbone.width
        self.backbone.embedding = self.adapter(width, features)
        self.backbone.head = zero_linear(features, self.outputs(width))

    @abstractmethod
    def gamma_schedule(self) -> GammaSchedule:
        """The noise schedule; a learned one is a module."""

    @abstractmethod
    def build_codes(self) -> nn.Module:
        """The code vectors, as the `weight` of a module; `FixedCodes` if they are not learned."""

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        """The code vector of each token."""
        codes = self.codebook.weight
        assert isinstance(codes, Tensor)
        return codes

    @abstractmethod
    def adapter(self, width: int, features: int) -> nn.Module:
        """The first layer of the network, from its inputs to features."""

    def outputs(self, width: int) -> int:
        """Number of outputs of the head: by default an estimate of the code vector."""
        return width

    @abstractmethod
    def predict(
        self,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        valid: Valid | None = None,
    ) -> Outputs:
        """The network's prediction from z_t.

        Args:
            z: Vectors at the noise levels.
            gamma: Noise level of each row.
            guess: Estimate of the code vectors, 0 where there is none. At known tokens it is their code.
            valid: False at padding.

        Returns:
            The prediction, which `estimate` and `log_tokens` read.
        """

    @abstractmethod
    def estimate(self, prediction: Outputs) -> Vectors:
        """The estimate of the code vectors in a prediction."""

    @abstractmethod
    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        """log p(token | z_t) in a prediction; MASK has probability 0."""

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs | None:
        """log p(token | z_0) without the network: the tokens of sampling, and the last term of the bound.

        None if the network reads z_0 as it reads any z_t.
        """
        return None

    def run_trunk(
        self,
        inputs: Float[Tensor, "rows length inputs"],
        gamma: Float[Tensor, "rows"],
        valid: Valid | None,
        dtype: torch.dtype,
    ) -> Outputs:
        """Adapter, trunk and head; the outputs have the given dtype."""
        own = self.backbone.head.weight.dtype
        with self.arithmetic():
            h = self.backbone.features(inputs.to(own), gamma.to(own), valid=valid)
            return self.backbone.logits(h).to(dtype)

    def denoiser(self) -> "LatentDenoiser":
        return LatentDenoiser(self)


@dataclass(frozen=True)
class LatentDenoiser:
    """The method as samplers of vectors call it; as a function, it predicts masked tokens of a text."""

    method: VectorMethod

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log p(token) at chosen positions, where masks have no signal and other tokens are known."""
        codes = self.codes
        known = (z_t != self.method.vocabulary.mask_id)[..., None]
        guess = torch.where(known, codes[z_t], 0.0)
        gamma = self.gamma(torch.ones(len(z_t), dtype=torch.float64)).to(codes.dtype)
        alpha, _ = signal(by_row(gamma))
        return self.log_tokens(self.predict(alpha * guess, gamma, guess))[at].float()

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        """The code vector of each token, in the precision of the sampler."""
        codes = self.method.codes.detach()
        # rounding would add up over thousands of steps; Apple's GPUs have no float64
        return codes if codes.device.type == "mps" else codes.double()

    @property
    def remembers(self) -> bool:
        """True if the network reads its last estimate."""
        return self.method.self_conditioning > 0

    def gamma(self, t: Times) -> Float[Tensor, "rows"]:
        """The noise level at each time, on the device."""
        codes = self.codes
        return self.method.gammas.gamma(to_device(t, codes.device, codes.dtype)).detach()

    def predict(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None = None
    ) -> Outputs:
        """The network's prediction from z_t."""
        return self.method.predict(z, gamma, guess, valid)

    def estimate(self, prediction: Outputs) -> Vectors:
        """The estimate of the code vectors in a prediction."""
        return self.method.estimate(prediction)

    def informative(self, tokens: Tokens, known: Valid) -> Valid:
        """True at known tokens other than BOS, EOS and padding, which begin and end every text."""
        v = self.method.vocabulary
        special = [i for i in (v.bos_id, v.eos_id, v.pad_id) if i is not None]
        return known & ~torch.isin(tokens, tokens.new_tensor(special))

    def condition(
        self,
        estimate: Vectors,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        tokens: Tokens,
        known: Valid,
    ) -> Vectors:
        """The estimate given known tokens, by the gradient of their log-probabilities.

        A network that trained with given tokens is certain of them, so its gradient is 0. The sum over
        tokens is exact for one known token, or if known tokens are independent given z_t.
        """

        def log_p(prediction: Outputs) -> Tensor:
            return chosen(self.log_tokens(prediction), tokens.clone()).where(known.clone(), 0.0)

        return self.moved(estimate, z, gamma, guess, log_p)

    def moved(
        self,
        estimate: Vectors,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        log_p: Callable[[Outputs], Tensor],
        weight: float = 1.0,
    ) -> Vectors:
        """The estimate after Bayes' rule, which adds weight * gradient of log p to the score of z_t.

        The estimate of the codes moves by sigma^2 / alpha times that.
        """
        # samplers run in inference mode, whose tensors carry no gradient: hence the clones
        with torch.inference_mode(False), torch.enable_grad():
            inputs = z.clone().requires_grad_()
            prediction = self.predict(inputs, gamma.clone(), guess.clone())
            (gradient,) = torch.autograd.grad(log_p(prediction).sum(), inputs)
        alpha, sigma = signal(by_row(gamma))
        return estimate + weight * sigma**2 / alpha * gradient

    def steer(
        self, estimate: Vectors, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors
    ) -> Vectors:
        """The estimate after guidance; this denoiser has none."""
        return estimate

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        """log p(token | z_t) in a prediction."""
        return self.method.log_tokens(prediction)

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs | None:
        """log p(token | z_0) without the network; None if the network reads z_0 as it reads any z_t."""
        return self.method.read(z_0, gamma_0)


def chosen(log_probs: TokenLogProbs, x: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length"]:
    """The log-probability of each token."""
    return log_probs.gather(-1, x[..., None])[..., 0]


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """A context without autocast: products of codes and vectors lose too much in bfloat16."""
    return torch.autocast(like.device.type, enabled=False)


def by_row(gamma: Float[Tensor, "rows"]) -> Float[Tensor, "rows 1 1"]:
    """A value of each row, as it multiplies vectors."""
    return gamma[:, None, None]
