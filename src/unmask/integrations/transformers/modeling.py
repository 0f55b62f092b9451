"""Model classes for transformers: AutoModel, AutoModelForMaskedLM, Trainer and pipelines accept them."""

from collections.abc import Mapping
from copy import copy
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

from unmask.backbones.compile import recompute_blocks
from unmask.backbones.layers.dropout import dropout_keys
from unmask.backbones.layers.inference_weights import InferenceWeights
from unmask.config.components import build_method
from unmask.config.run_config import from_dict
from unmask.diffusion.parameterization import zero_masked
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.formats import huggingface
from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.generate import generate_rows
from unmask.methods.method import Method, padding, targets
from unmask.model import Model
from unmask.randomness import RowStream
from unmask.vocabulary import Vocabulary

IGNORED = -100  # the label of a token without loss
_noise_lock = Lock()  # replicas of a network share one `NoiseStream`


class UnmaskPreTrainedModel(PreTrainedModel):
    """A method and its network. The names of the weights are those of `unmask.Model`."""

    config_class = UnmaskConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True

    def __init__(self, config: UnmaskConfig) -> None:
        super().__init__(config)
        if not config.run:
            raise UnmaskError(
                "this configuration has no run and describes no network: use from_model or from_pretrained"
            )
        method = build_method(from_dict(config.run), Vocabulary(**config.vocabulary))
        # in __dict__, so that its modules are not registered a second time
        self.__dict__["_built"] = method
        self.backbone = method.backbone
        # accelerate moves inputs in `forward` only, and `features` is called directly: keep one device
        self._no_split_modules = [type(method.backbone).__name__]
        if isinstance(method.schedule, nn.Module):
            self.schedule: Schedule = method.schedule
        self.noise = NoiseStream(from_dict(config.run).seed)
        self.post_init()

    @classmethod
    def from_model(cls, model: Model) -> "UnmaskPreTrainedModel":
        """A copy of the model's network as a transformers model."""
        tree = huggingface.config_json(model)
        wrapped = cls(UnmaskConfig(**{k: v for k, v in tree.items() if k != "model_type"}))
        wrapped.load_state_dict(model.method.state_dict())
        return wrapped.eval()

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **options: Any) -> Any:
        """Reads a folder or a model of the hub like transformers.

        Missing weights and weights of another shape are an error.
        """
        with_info = options.pop("output_loading_info", False)
        network, info = super().from_pretrained(name, *args, output_loading_info=True, **options)
        wrong = [f"{key} is missing" for key in info["missing_keys"]]
        # mismatched keys appear under ignore_mismatched_sizes
        wrong += [f"{key[0]} has another shape" for key in info["mismatched_keys"]]
        if wrong:  # these weights would be uninitialized memory
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise UnmaskError(
                f"{name} does not fit: {'; '.join(sorted(wrong)[:3])}{more}; save it again"
            )
        return (network, info) if with_info else network

    @property
    def method(self) -> Method:
        """The method with the network of this object; a DataParallel replica has its own network."""
        built: Method = self.__dict__["_built"]
        if built.backbone is self.backbone:
            return built
        replica = copy(built)
        replica._modules = {name: getattr(self, name) for name in built._modules}
        return replica

    @property
    def gradient_checkpointing(self) -> bool:
        """True if the backward pass recomputes blocks instead of storing their activations."""
        return any(getattr(module, "recomputed", False) for module in self.backbone.modules())

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, recompute: bool) -> None:
        recompute_blocks(self.backbone, recompute)

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.backbone.embedding

    def get_output_embeddings(self) -> nn.Module:
        """The output head."""
        return self.backbone.head

    def train(self, mode: bool = True) -> "UnmaskPreTrainedModel":
        """Sets the mode; evaluation mode restarts the evaluation noise, so that losses are comparable."""
        if not mode and hasattr(self, "noise"):
            self.noise.begin_evaluation()
        return super().train(mode)

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: networks initialize themselves, and a file holds all weights."""

    def _features(
        self, input_ids: Tensor, attention_mask: Tensor | None, timesteps: Tensor | None
    ) -> Tensor:
        self._prepare_weights()
        valid, sigma = _valid(input_ids, attention_mask), None
        if timesteps is not None and not self.backbone.time_conditioning:
            raise UnmaskError("this network does not read the time: leave timesteps out")
        if self.backbone.time_conditioning:
            if timesteps is None:
                timesteps = self._time_of(input_ids, valid)
            sigma = self.method.condition(timesteps, input_ids.device)  # type: ignore[operator]
        return self.backbone.features(input_ids, sigma, valid=padding(valid, input_ids.device))

    def _prepare_weights(self) -> None:
        """Prepares inference weights like `unmask.load`, so that outputs agree to the bit."""
        if getattr(self, "_is_replica", False):
            # the inference weights of a DataParallel replica are on the device of the original
            for module in self.backbone.modules():
                if isinstance(module, InferenceWeights):
                    module.thaw()
            return
        if not self.training and not torch.is_grad_enabled():
            self._freeze()

    def _freeze(self) -> None:
        """Recomputes the inference weights, because in-place changes of weights cannot be detected."""
        if self.backbone.head.weight.dtype == torch.float32:
            self.backbone.freeze(torch.float32)

    def _time_of(self, input_ids: Tensor, valid: Tensor) -> Tensor:
        """The time t of each row at which the expected share of masks equals the row's share."""
        masked = ((input_ids == self.method.vocabulary.mask_id) & valid).sum(1)
        share = (masked / valid.sum(1).clamp(min=1)).double().clamp(1e-3, 1)
        return self.method.schedule.inverse(1 - share.cpu()).detach()

    def _checked_inputs(
        self, input_ids: Tensor | None, others: Mapping[str, Any], return_dict: bool | None
    ) -> tuple[Tensor, bool]:
        """The ids, and True for a named output, not a tuple. An argument without effect is an error."""
        unsupported = ("output_attentions", "output_hidden_states")
        from_config = {name: getattr(self.config, name, None) for name in unsupported}
        for name, value in {**from_config, **others}.items():
            first_type = name == "token_type_ids" and value is not None and not bool(value.any())
            if value is not None and value is not False and not first_type:
                raise UnmaskError(f"{type(self).__name__} takes no {name}: leave it out")
        if input_ids is None:
            raise UnmaskError(f"{type(self).__name__} lacks input_ids: give them")
        named = getattr(self.config, "return_dict", True) if return_dict is None else return_dict
        return input_ids, bool(named)


class UnmaskModel(UnmaskPreTrainedModel):
    """The network without its head."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        timesteps: Tensor | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """The features of every token, [rows, length, width]."""
        tokens, named = self._checked_inputs(input_ids, others, return_dict)
        output = BaseModelOutput(self._features(tokens, attention_mask, timesteps))
        return output if named else output.to_tuple()


class UnmaskForMaskedLM(UnmaskPreTrainedModel):
    """Logits of every token; with `labels`, the bound that unmask's trainer minimises."""

    def __init__(self, config: UnmaskConfig) -> None:
        super().__init__(config)
        if not self.method.capabilities.infill:
            raise UnmaskError("an autoregressive model fills no gaps: load it with unmask.load")

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        timesteps: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> MaskedLMOutput | tuple[Tensor, ...]:
        """Logits of a text with masks, or, with `labels`, the loss.

        Args:
            input_ids: Tokens [rows, length]. The logit of MASK is -inf at every position.
            attention_mask: 1 for tokens, 0 for padding.
            labels: Clean tokens; IGNORED (-100) at given tokens and padding. `forward` draws the masks.
            timesteps: Time t of each row, for a network with time conditioning. By default it follows from
                the row's share of masks.
            num_items_in_batch: Divisor of the loss; by default the number of tokens with loss in this batch.
            return_dict: False returns a tuple.
            others: Further arguments of transformers. They have no effect, so a value for one is an error.

        Returns:
            Logits, or the bound in nats per token.
        """
        tokens, named = self._checked_inputs(input_ids, others, return_dict)
        if labels is not None:
            if timesteps is not None:
                raise UnmaskError("labels and timesteps exclude each other: leave timesteps out")
            output = MaskedLMOutput(
                loss=self._nelbo(tokens, attention_mask, labels, num_items_in_batch)
            )
        else:
            logits = self.backbone.logits(self._features(tokens, attention_mask, timesteps))
            output = MaskedLMOutput(logits=zero_masked(logits, self.method.vocabulary.mask_id))
        return output if named else output.to_tuple()

    def generate(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Rows with their masks filled; a row without masks is continued.

        Args:
            input_ids: Tokens [rows, length]; by default one empty prompt.
            attention_mask: 1 for tokens, 0 for padding.
            options: `max_length`, `max_new_tokens`, `num_return_sequences`, and sampling options such as
                sampler, steps, temperature and seed. `config.generation` holds the defaults.

        Returns:
            Ids [rows, length], padded to the longest row.
        """
        self._freeze()  # once for all steps of all texts
        return generate_rows(self.method, self.config, input_ids, attention_mask, options)

    def _nelbo(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        labels: Tensor,
        count: Tensor | int | None,
    ) -> Tensor:
        self._prepare_weights()
        scored = labels != IGNORED
        x = torch.where(scored, labels, x)
        valid = _valid(x, attention_mask)
        # the noise is drawn on the CPU and needs both masks there
        valid, scored = valid.cpu(), scored.cpu() & valid.cpu()
        given = None if bool(scored[valid].all()) else valid & ~scored
        with _noise_lock:
            stream = self.noise.draw(len(x), self.training)
        method = self.method
        draw = method.training_noise if self.training else method.noise
        noise = draw(stream, targets(valid, given))
        self.backbone.dropout_keys = dropout_keys(stream, x.device)
        try:
            total = method.nll(x, valid, noise, given=given).total
        finally:
            self.backbone.dropout_keys = None  # the keys belong to these rows only
        return total / (max(1, int(scored.sum())) if count is None else count)


def _valid(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """True at tokens that are not padding; without an attention mask, at all tokens."""
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if attention_mask.shape != input_ids.shape:
        raise UnmaskError(
            f"attention_mask has shape {list(attention_mask.shape)} and input_ids "
            f"{list(input_ids.shape)}: give both the same shape"
        )
    return attention_mask.bool()


class NoiseStream:
    """Random streams of successive losses. Set `seed` and `step` to draw the same noise again."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step = seed, 0
        self._evaluations = 0

    def begin_evaluation(self) -> None:
        """Restarts the evaluation noise; the noise of training is not restarted."""
        self._evaluations = 0

    def draw(self, rows: int, training: bool) -> RowStream:
        """The random stream of the next loss, for this rank's rows of the global batch."""
        rank, world = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        step = self.step if training else self._evaluations
        if training:
            self.step += 1
        else:
            self._evaluations += 1
        return RowStream(self.seed, step, range(rank * rows, (rank + 1) * rows), world * rows)
