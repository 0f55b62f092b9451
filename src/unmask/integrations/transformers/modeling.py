"""Model classes for transformers: AutoModel, AutoModelForMaskedLM, Trainer and pipelines accept them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

from unmask.backbones.backbone import Backbone
from unmask.backbones.compile import recompute_blocks
from unmask.backbones.layers.dropout import dropout_keys
from unmask.config.components import build_method
from unmask.config.run_config import from_dict
from unmask.diffusion.parameterization import zero_masked
from unmask.diffusion.process import q_sample
from unmask.diffusion.time_sampler import Noise
from unmask.errors import UnmaskError
from unmask.files.tensors import check_finite
from unmask.formats import huggingface
from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.generate import generate_rows
from unmask.integrations.transformers.row_end import Rows, continued
from unmask.methods.method import METHODS, Method, padding
from unmask.model import Model
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

IGNORED = -100  # the label of a token without loss
_noise_lock = Lock()  # replicas of a network share one `NoiseStream`


class UnmaskPreTrainedModel(PreTrainedModel):
    """A method and its network. The names of the weights are those of `unmask.Model`."""

    config_class = UnmaskConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # "eager" computes attention with torch's plain operations
    accepts_loss_kwargs = True

    def __init__(self, config: UnmaskConfig) -> None:
        super().__init__(config)
        if not config.run:
            raise UnmaskError(
                "this configuration has no run and describes no network: use from_model or from_pretrained"
            )
        method = build_method(from_dict(config.run), Vocabulary(**config.vocabulary))
        if method.capabilities.latent:
            raise UnmaskError(
                f"a network of method {METHODS.name_of(method)} reads vectors and no token ids: load it "
                "with unmask.load"
            )
        # in __dict__, so that its modules are not registered a second time
        self.__dict__["_built"] = method
        self.backbone = method.backbone
        # accelerate moves inputs in `forward` only, and `features` is called directly: keep one device
        self._no_split_modules = [type(method.backbone).__name__]
        for name, module in method.named_children():  # a learned schedule, or token frequencies
            setattr(self, name, module)
        self.noise = NoiseStream(from_dict(config.run).seed)
        if self._tied:  # save_pretrained writes a shared matrix once
            config.tie_word_embeddings = True
            self._tied_weights_keys = {"backbone.head.weight": "backbone.embedding.weight"}
        self.post_init()

    @property
    def _tied(self) -> bool:
        """True if head and embedding share a matrix.

        transformers 4 builds the network with separate matrices and ties them later.
        """
        return bool(getattr(from_dict(self.config.run).backbone.config, "tied_head", False))

    @classmethod
    def from_model(cls, model: Model) -> "UnmaskPreTrainedModel":
        """A copy of the model's network as a transformers model."""
        tree = huggingface.config_json(model)
        wrapped = cls(UnmaskConfig(**{k: v for k, v in tree.items() if k != "model_type"}))
        wrapped.load_state_dict(model.method.state_dict())
        return wrapped.eval()

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any = None, *args: Any, **options: Any
    ) -> Any:
        """Reads a folder or a model of the hub like transformers.

        Missing weights, weights of another shape, NaN and infinity are an error.
        """
        name, with_info = pretrained_model_name_or_path, options.pop("output_loading_info", False)
        network, info = super().from_pretrained(name, *args, output_loading_info=True, **options)
        wrong = [f"{key} is missing" for key in info["missing_keys"]]
        # mismatched keys appear under ignore_mismatched_sizes
        wrong += [f"{key[0]} has another shape" for key in info["mismatched_keys"]]
        if wrong:  # these weights would be uninitialized memory
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise UnmaskError(
                f"{name} does not fit: {'; '.join(sorted(wrong)[:3])}{more}; save it again"
            )
        check_finite(_unquantised(network.state_dict()), name)
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

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces the token embedding."""
        self.backbone.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        """The output head."""
        return self.backbone.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replaces the output head."""
        self.backbone.head = new_embeddings

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *args: Any, **options: Any
    ) -> nn.Module:
        """Resizes embedding, head and vocabulary. MASK and other special tokens keep their ids."""
        vocabulary = self.method.vocabulary
        if new_num_tokens is not None:
            vocabulary.extended(new_num_tokens)  # an error if a special id would be cut off
        tied = self._tied
        if (
            tied
        ):  # two matrices, since the head's bias is resized only with a matrix of the old size
            self.backbone.head.weight = nn.Parameter(self.backbone.head.weight.detach().clone())
        table: nn.Embedding = super().resize_token_embeddings(new_num_tokens, *args, **options)
        if tied:
            self.backbone.head.weight = table.weight
        self.method.vocabulary = vocabulary.extended(table.num_embeddings)
        self.config.vocabulary = self.method.vocabulary.to_dict()
        self.backbone.thaw()
        return table

    def train(self, mode: bool = True) -> "UnmaskPreTrainedModel":
        """Sets the mode; evaluation mode restarts the evaluation noise, so that losses are comparable."""
        if not mode and hasattr(self, "noise"):
            self.noise.begin_evaluation()
        return super().train(mode)

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: networks initialize themselves, and a file holds all weights."""

    def _features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        timesteps: Tensor | None,
        position_ids: Tensor | None = None,
        all_layers: bool | None = False,
    ) -> tuple[Tensor, ...]:
        """Features of all tokens; with `all_layers`, the inputs of the blocks before them."""
        positions = self._positions(input_ids, position_ids)
        if positions is not None and positions.ndim == 2:  # each row has its own
            own = [slice(row, row + 1) for row in range(len(input_ids))]
            found = [
                self._features(
                    input_ids[row],
                    None if attention_mask is None else attention_mask[row],
                    None if timesteps is None else timesteps[row],
                    positions[row],
                    all_layers,
                )
                for row in own
            ]
            return tuple(map(torch.cat, zip(*found, strict=True)))
        self._prepare_weights()
        valid, sigma = _valid(input_ids, attention_mask), None
        if timesteps is not None and not self.backbone.time_conditioning:
            raise UnmaskError("this network does not read the time: leave timesteps out")
        if self.backbone.time_conditioning:
            if timesteps is None:
                timesteps = self._time_of(input_ids, valid)
            sigma = self.method.condition(timesteps, input_ids.device)  # type: ignore[operator]
        attended = None if attention_mask is None else valid
        if torch.compiler.is_compiling():
            # a graph depends on no values, and on no table of positions
            if positions is None:
                positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        elif attended is not None:
            attended = padding(attended, input_ids.device)
        with self._kernel(), _recorded(self.backbone, all_layers) as layers:
            h = self.backbone.features(input_ids, sigma, valid=attended, positions=positions)
        return (*layers, h)

    def _positions(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor | None:
        """Positions [length] of all rows, or [rows, length] if rows differ; None for 0, 1, …"""
        if position_ids is None:
            return None
        length, longest = input_ids.shape[1], self.backbone.longest
        if position_ids.shape[-1] != length or position_ids.numel() not in (
            length,
            input_ids.numel(),
        ):
            raise UnmaskError(
                f"position_ids have shape {list(position_ids.shape)} and input_ids "
                f"{list(input_ids.shape)}: give both the same shape"
            )
        if longest is not None and int(position_ids.max()) >= longest:
            raise UnmaskError(
                f"position_ids hold {int(position_ids.max())}, but the network has {longest} "
                "positions: shorten the text"
            )
        rows = position_ids.reshape(-1, length)
        if not bool((rows == rows[0]).all()):
            return rows
        return None if torch.equal(rows[0], torch.arange(length, device=rows.device)) else rows[0]

    def _kernel(self) -> AbstractContextManager[Any]:
        """Attention as `attn_implementation` names it: eager is plain operations, sdpa any kernel."""
        eager = self.config._attn_implementation == "eager"
        return sdpa_kernel(SDPBackend.MATH) if eager else nullcontext()

    def _prepare_weights(self) -> None:
        """Prepares inference weights like `unmask.load`, so that outputs agree to the bit."""
        if torch.compiler.is_compiling():  # a graph reads the weights themselves
            return
        if getattr(self, "_is_replica", False):
            # the inference weights of a DataParallel replica are on the device of the original
            self.backbone.thaw()
            return
        if not self.training and not torch.is_grad_enabled():
            self._freeze()

    def _freeze(self) -> None:
        """Recomputes the inference weights, because in-place changes of weights cannot be detected."""
        if self.dtype == torch.float32:
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
        from_config = {"output_attentions": getattr(self.config, "output_attentions", None)}
        for name, value in {**from_config, **others}.items():
            first_type = name == "token_type_ids" and value is not None and not bool(value.any())
            if value is not None and value is not False and not first_type:
                raise UnmaskError(f"{type(self).__name__} takes no {name}: leave it out")
        if input_ids is None:
            raise UnmaskError(f"{type(self).__name__} lacks input_ids: give them")
        named = getattr(self.config, "return_dict", True) if return_dict is None else return_dict
        return input_ids, bool(named)

    def _all_layers(self, wanted: bool | None) -> bool:
        """True if the output has hidden states."""
        return bool(self.config.output_hidden_states if wanted is None else wanted)


class UnmaskModel(UnmaskPreTrainedModel):
    """The network without its head."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        timesteps: Tensor | None = None,
        return_dict: bool | None = None,
        position_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """The features of every token, [rows, length, width]."""
        tokens, named = self._checked_inputs(input_ids, others, return_dict)
        all_layers = self._all_layers(output_hidden_states)
        found = self._features(tokens, attention_mask, timesteps, position_ids, all_layers)
        output = BaseModelOutput(found[-1], hidden_states=found if all_layers else None)
        return output if named else output.to_tuple()


class UnmaskForMaskedLM(UnmaskPreTrainedModel):
    """Logits of every token; with `labels`, the bound that unmask's trainer minimises.

    If the caller masked `input_ids` itself, as DataCollatorForLanguageModeling does, the loss is the
    cross-entropy of the masked language models of transformers.
    """

    def __init__(self, config: UnmaskConfig) -> None:
        super().__init__(config)
        if not self.method.capabilities.masked_lm:
            raise UnmaskError(
                f"a model of method {METHODS.name_of(self.method)} fills no gaps in transformers: load it "
                "with unmask.load"
            )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        timesteps: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
        position_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> MaskedLMOutput | tuple[Tensor, ...]:
        """Logits of a text with masks; with `labels`, also the loss.

        If `input_ids` equal `labels` at all labelled positions, masks are drawn here and the loss is the
        bound. If they differ anywhere, the masks are the caller's, and the loss is the cross-entropy.

        Args:
            input_ids: Tokens [rows, length]. The logit of MASK is -inf at every position.
            attention_mask: 1 for tokens, 0 for padding.
            labels: Clean tokens; IGNORED (-100) at given tokens and padding. `forward` draws the masks,
                unless `input_ids` differ from the labels at a labelled token.
            timesteps: Time t of each row, for a network with time conditioning. By default it follows from
                the row's share of masks.
            num_items_in_batch: Divisor of the loss; by default the number of tokens with loss in this batch.
            return_dict: False returns a tuple.
            position_ids: Positions of the tokens; 0, 1, … by default.
            output_hidden_states: True returns the inputs of all blocks, and the features.
            others: Further arguments of transformers. They have no effect, so a value for one is an error.

        Returns:
            Logits, and the loss in nats per token. The bound has logits in evaluation mode only: those of
            the text with the drawn masks.
        """
        tokens, named = self._checked_inputs(input_ids, others, return_dict)
        if labels is None or self._masked_by_caller(tokens, labels):
            all_layers = self._all_layers(output_hidden_states)
            given = Rows(tokens, attention_mask, position_ids)
            rows = continued(given, self.config.row_length, self.method.vocabulary.mask_id)
            found = self._features(
                rows.tokens, rows.attention_mask, timesteps, rows.position_ids, all_layers
            )
            if rows is not given:
                found = tuple(layer[:, : tokens.shape[1]] for layer in found)
            logits = self._logits(found[-1])
            output = MaskedLMOutput(logits=logits, hidden_states=found if all_layers else None)
            if labels is not None:
                output.loss = _cross_entropy(logits, labels, num_items_in_batch)
        elif timesteps is not None or position_ids is not None:
            name = "timesteps" if position_ids is None else "position_ids"
            raise UnmaskError(f"the bound of labels takes no {name}: leave {name} out")
        else:
            output = self._nelbo(tokens, attention_mask, labels, num_items_in_batch)
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
            options: `max_length`, `max_new_tokens`, `num_return_sequences`, `do_sample`,
                `generation_config`, `streamer`, and sampling options such as sampler, steps, temperature
                and seed. `config.generation` holds the defaults.

        Returns:
            Ids [rows, length], padded to the longest row.
        """
        self._freeze()  # once for all steps of all texts
        return generate_rows(self.method, self.config, input_ids, attention_mask, options)

    def _logits(self, h: Tensor) -> Tensor:
        return zero_masked(self.backbone.logits(h), self.method.vocabulary.mask_id)

    def _masked_by_caller(self, input_ids: Tensor, labels: Tensor) -> bool:
        """True if some labelled token differs from its label. MASK as a label is an error."""
        if bool((labels == self.method.vocabulary.mask_id).any()):
            raise UnmaskError(
                f"labels hold MASK, whose loss is infinite: give clean tokens, or {IGNORED}"
            )
        return bool(((labels != IGNORED) & (labels != input_ids)).any())

    def _nelbo(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        labels: Tensor,
        count: Tensor | int | None,
    ) -> MaskedLMOutput:
        self._prepare_weights()
        scored = labels != IGNORED
        valid = _valid(x, attention_mask)
        # the noise is drawn on the CPU and needs both masks there
        valid, scored = valid.cpu(), scored.cpu() & valid.cpu()
        given = None if bool(scored[valid].all()) else valid & ~scored
        with _noise_lock:
            stream = self.noise.draw(len(x), self.training)
        method = self.method
        draw = method.training_noise if self.training else method.noise
        batch = Batch(x.cpu(), valid, given)
        noise = draw(stream, batch.scored)
        self.backbone.dropout_keys = dropout_keys(stream, x.device)
        try:
            with self._kernel():
                total = method.nll(batch, noise).total
        finally:
            self.backbone.dropout_keys = None  # the keys belong to these rows only
        loss = total / (max(1, int(scored.sum())) if count is None else count)
        if self.training or not isinstance(noise, Noise):
            return MaskedLMOutput(loss=loss)
        z_t = q_sample(x, to_device(noise.masked, x.device), method.vocabulary.mask_id)
        times = noise.t if self.backbone.time_conditioning else None
        (h,) = self._features(z_t, attention_mask, times)
        return MaskedLMOutput(loss=loss, logits=self._logits(h))


@contextmanager
def _recorded(backbone: Backbone, wanted: bool | None) -> Iterator[list[Tensor]]:
    """A list that receives the input of each block, if wanted."""
    found: list[Tensor] = []
    if wanted and not hasattr(backbone, "blocks"):
        raise UnmaskError("this network has no blocks: leave output_hidden_states out")
    hooks = [
        block.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        for block in (getattr(backbone, "blocks", ()) if wanted else ())
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _cross_entropy(logits: Tensor, labels: Tensor, count: Tensor | int | None) -> Tensor:
    """Mean cross-entropy of the labelled tokens; with `count`, their sum over `count`."""
    total = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (labels != IGNORED).sum() if count is None else total / count


def _unquantised(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that hold plain numbers: on a device, in a float type of 16 bits or more."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if type(tensor) in (Tensor, nn.Parameter)
        and not tensor.is_meta
        and tensor.is_floating_point()
        and tensor.itemsize > 1
    }


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
