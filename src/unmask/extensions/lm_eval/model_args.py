"""The keys of `--model_args`: options of the model, the likelihood and the sampler."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from unmask.config.values import read_value
from unmask.errors import UnmaskError, unknown
from unmask.generation.sampling_params import SHARPNESS, sampling_options
from unmask.likelihood.estimate import How

DEFAULT_BATCH = 32  # also of batch_size auto


@dataclass(frozen=True)
class Options:
    """The values of `--model_args`; `sampling` holds the options of `Model.generate`."""

    path: str  # run folder or exported model
    device: str = "auto"
    precision: str = "fp32"
    compile: bool = False
    batch_size: str = str(DEFAULT_BATCH)  # rows of one pass of the network, or auto
    max_batch_size: int = DEFAULT_BATCH  # rows of batch_size auto
    row_length: int | None = None  # tokens of a row of a likelihood; None: the model's length
    draws: int = 32  # noise draws per row
    seed: int = 0
    estimator: str | None = None
    order: str | None = None
    orders: int | None = None
    bound_steps: int | None = None  # T of the bound; `steps` is an option of the sampler
    max_gen_toks: int = 256  # default for tasks that set none
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Options":
        """Options from the harness's arguments; an unknown key is an error."""
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
            raise UnmaskError(
                "model_args has no path: give path=MODEL, a run folder or an exported model"
            )
        sampling = {name: value for name, value in arguments.items() if name in of_sampling}
        return cls(**values, sampling=sampling)

    @property
    def batch(self) -> int:
        """Rows of one pass of the network."""
        if self.batch_size.startswith("auto"):
            return self.max_batch_size
        return _read(int, "batch_size", self.batch_size)

    @property
    def loading(self) -> dict[str, Any]:
        """Arguments of `load`."""
        # the harness passes cuda:0 by default, even on a machine without a GPU
        device = "auto" if self.device == "cuda:0" else self.device
        return {"device": device, "precision": self.precision, "compile": self.compile}

    @property
    def how(self) -> How:
        """Choice of the likelihood estimator."""
        return {
            "estimator": self.estimator,
            "steps": self.bound_steps,
            "order": self.order,
            "orders": self.orders,
        }


def decoding(
    defaults: Mapping[str, Any], own: Mapping[str, Any], task: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of `Model.generate` for a request: greedy,
    unless the task or model_args request sampling.

    `own` are the options of model_args and take precedence over the task. Temperature, top_k, top_p
    and logits processors in model_args request sampling, even if the task is greedy.
    """
    sharp = {name: source[name] for source in (task, own) for name in SHARPNESS if name in source}
    sharp = {name: value for name, value in sharp.items() if value is not None}
    temperature = sharp.get("temperature", 1.0)
    task_samples = task.get("do_sample", "temperature" in sharp)
    own_samples = any(name in SHARPNESS or "." in name for name in own)
    if not sharp.get("top_k"):  # top_k 0 turns top-k off in the harness
        sharp.pop("top_k", None)
    options = dict(defaults)
    if temperature != 0 and (task_samples or own_samples):
        options |= {"strategy": "stochastic", **sharp}
    return options | {name: value for name, value in own.items() if name not in SHARPNESS}


def _read(hint: Any, name: str, value: Any) -> Any:
    try:
        return read_value(hint, value)
    except ValueError as error:
        raise UnmaskError(f"model_args {name}: {error}") from None
