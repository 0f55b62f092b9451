"""Learned order: a policy chooses the positions to write, and the network draws their tokens."""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from unmask.extensions.orders.order_policy import OrderPolicy, static_features
from unmask.samplers.confidence import Counted, Scores
from unmask.samplers.core.sampler_state import SamplerState, View
from unmask.samplers.sampler import SAMPLERS
from unmask.shapes import Places


@SAMPLERS.register("learned_order")
@dataclass(frozen=True)
class LearnedOrder(Counted):
    """Writes at positions that a trained policy chooses; without one, as `confidence` does.

    The policy reads visible tokens only, so with the exact denoiser one token per step is exact.
    """

    policy: OrderPolicy = field(default_factory=OrderPolicy, compare=False, repr=False)

    @property
    def trained_for(self) -> str:
        return self.policy.digest

    def score(self, view: View) -> Float[Tensor, "tokens"]:
        return view.log_probabilities.amax(-1)

    def select(
        self,
        state: SamplerState,
        view: View,
        count: Int[Tensor, "rows"],
        noise: Scores | float,
    ) -> Places:
        policy = self.policy.to(state.z.device)
        masked = state.masked
        features = static_features(view.log_probabilities, view.rows, view.columns, masked)
        seen = masked.new_zeros(masked.shape)
        seen[view.rows, view.columns] = True
        return policy.choose(features, ~masked, seen, count, lambda: noise)[0]
