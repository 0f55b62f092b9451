"""What `--model_args` may say, and what of it goes to the model, the likelihood and the sampler."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from unmask.config.values import read_value
from unmask.errors import UnmaskError, unknown
from unmask.generation.sampling_params import SHARPNESS, sampling_options
from unmask.likelihood.estimate import How

USUAL_BATCH = 32  # of batch_size auto


@dataclass(frozen=True)
class Options:
    """The keys of `--model_args`, and the options of `Model.generate` that may stand beside them."""

    path: str  # a run folder or an exported model
    device: str = "auto"
    precision: str = "fp32"
    compile: bool = False
    batch_size: str = str(USUAL_BATCH)  # rows that the network reads at a time, or auto
    max_batch_size: int = USUAL_BATCH  # what auto is
    draws: int = 32  # of the noise, for each row
    seed: int = 0
    estimator: str | None = None
    order: str | None = None
    orders: int | None = None
    bound_steps: int | None = None  # T of the bound: `steps` are the sampler's
    max_gen_toks: int = 256  # unless the task says
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Options":
        """From what the harness has read, of which nothing may be unknown."""
        hints = get_type_hints(cls)
        own = {each.name for each in fields(cls)} - {"sampling"}
        of_sampling = {one.name for one in sampling_options("harness")}
        values: dict[str, Any] = {}
        for name, value in arguments.items():
            if name in own:
                values[name] = _read(hints[name], name, value)
            elif name not in of_sampling:
                raise unknown("key in model_args:", name, own | of_sampling)
        if "path" not in values:
            raise UnmaskError("model_args needs path=MODEL, a run folder or an exported model")
        sampling = {name: value for name, value in arguments.items() if name in of_sampling}
        return cls(**values, sampling=sampling)

    @property
    def batch(self) -> int:
        """Rows at a time."""
        if self.batch_size.startswith("auto"):
            return self.max_batch_size
        return _read(int, "batch_size", self.batch_size)

    @property
    def loading(self) -> dict[str, Any]:
        """What `load` takes."""
        # what the harness says when its user says nothing, on any machine
        device = "auto" if self.device == "cuda:0" else self.device
        return {"device": device, "precision": self.precision, "compile": self.compile}

    @property
    def how(self) -> How:
        """Which likelihood."""
        return {
            "estimator": self.estimator,
            "steps": self.bound_steps,
            "order": self.order,
            "orders": self.orders,
        }


def decoding(usual: Mapping[str, Any], own: Mapping[str, Any], asked: Mapping[str, Any]) -> dict:
    """Options of a text: greedy, unless the task asks for draws; model_args go before the task's.

    A logits processor in model_args asks for draws too: it changes their distribution.
    """
    sharp = {name: source[name] for source in (asked, own) for name in SHARPNESS if name in source}
    sharp = {name: value for name, value in sharp.items() if value is not None}
    temperature = sharp.get("temperature", 1.0)
    wanted = asked.get("do_sample", "temperature" in sharp)
    drawn = temperature != 0 and (wanted or any(name in SHARPNESS or "." in name for name in own))
    if not sharp.get("top_k"):  # 0 is none to the harness
        sharp.pop("top_k", None)
    chosen = {**usual, "strategy": "stochastic", **sharp} if drawn else dict(usual)
    return chosen | {name: value for name, value in own.items() if name not in SHARPNESS}


def _read(hint: Any, name: str, value: Any) -> Any:
    try:
        return read_value(hint, value)
    except ValueError as error:
        raise UnmaskError(f"model_args {name}: {error}") from None
