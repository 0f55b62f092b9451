"""The model class `unmask` of lm-evaluation-harness; importing this module needs lm_eval."""

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from unmask.extensions.lm_eval.model_args import Options
from unmask.extensions.lm_eval.requests import RequestRunner
from unmask.likelihood.estimate import Progress
from unmask.model import load


@register_model("unmask")
class UnmaskLM(LM):
    """A model loaded from a run folder or an export; `--model_args` sets its options."""

    def __init__(self, **model_args: Any) -> None:
        super().__init__()
        options = Options.of(model_args)
        self._runner = RequestRunner(load(options.path, **options.loading), options)
        self._device = self._runner.model.device

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """log p(continuation | context), and True if greedy decoding writes the continuation."""
        return _with_progress(self._runner.loglikelihood, requests, disable_tqdm)

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """log p of each text."""
        return _with_progress(
            lambda contents, progress: self._runner.rolling(
                [text for (text,) in contents], progress
            ),
            requests,
            disable_tqdm,
        )

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context, up to a stop string."""
        return _with_progress(self._runner.generate_until, requests, disable_tqdm)

    def get_model_info(self) -> dict[str, Any]:
        """Facts about the likelihood, which the harness saves with its results."""
        return self._runner.about


def _with_progress(
    run: Callable[[list[Any], Progress], list[Any]], requests: Sequence[Instance], quiet: bool
) -> list[Any]:
    """Runs the requests with a progress bar, and returns their results."""
    with tqdm(total=len(requests), disable=quiet) as bar:
        return run(
            [request.args for request in requests],
            lambda share: bar.update(round(share * len(requests)) - bar.n),
        )
