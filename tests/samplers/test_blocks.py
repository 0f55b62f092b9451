"""The sampler of blocks: the enumerated distribution, an exact cache, and text that is final."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kit import Language
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention_rules import BlockRule
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.block_diffusion import BlockDiffusion
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.blocks import Blocks
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.vocabulary import Vocabulary

SIZE = 7
EOS = 2
SCHEDULE = SCHEDULES.build("loglinear")
INNER = {
    "ancestral": {"steps": 4},
    "first_hitting": {},
    "confidence": {"steps": 2},
    "threshold": {"threshold": 0.3},
    "remask": {"steps": 4},
}


class Known:
    """The tokens before a block, without a cache."""

    def __init__(self, owner, tokens, block):
        self.owner, self.tokens, self.block = owner, tokens, block

    def append(self, tokens):
        self.tokens = torch.cat([self.tokens, tokens], 1)

    def keep(self, rows):
        self.tokens = self.tokens[rows]

    def of_rows(self, rows):
        return Known(self.owner, self.tokens[rows], self.block)

    def __call__(self, z_t, t, at):
        return self.owner.predict(self.tokens, z_t, self.block)[at]


class Uncached:
    """Reads the text before a block again in every call."""

    def __init__(self, method):
        self.method, self.block = method, method.smallest

    def context(self, rows, capacity, block):
        return Known(self, torch.zeros(rows, 0, dtype=torch.long), block)

    def __call__(self, z_t, t, at):
        return self.predict(z_t[:, :0], z_t, z_t.shape[1])[at]

    def predict(self, known, z_t, block):
        z_t = F.pad(z_t, (0, block - z_t.shape[1]), value=SIZE)
        assert known.shape[1] % block == 0
        h = self.method.backbone.features(torch.cat([known, z_t], 1), rule=BlockRule(block))
        return self.method.log_mean(h[:, known.shape[1] :])


class Oracle(Uncached):
    """The conditionals of an enumerated language."""

    def __init__(self, language, block):
        self.language, self.block = language, block

    def predict(self, known, z_t, block):
        rest = self.language.length - known.shape[1] - z_t.shape[1]
        state = F.pad(torch.cat([known, z_t], 1), (0, rest), value=self.language.size)
        p = self.language.conditionals[self.language.index(state, self.language.size + 1)]
        return p[:, known.shape[1] : known.shape[1] + z_t.shape[1]].log()


def method(network: str = "dit", **options) -> BlockDiffusion:
    kind = BACKBONES[network]
    shape = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0}
    shape |= {"kv_heads": 1} if network == "llama" else {}
    torch.manual_seed(1)
    backbone = kind(kind.Config(**shape), Vocabulary.over(SIZE))
    for name, parameter in backbone.named_parameters():
        torch.nn.init.normal_(parameter, std=0.0 if "noise_level" in name else 0.3)
    config = BlockDiffusion.Config(**{"blocks": (4, 0), **options})
    parts = SCHEDULE, TIME_SAMPLERS.build("uniform")
    return BlockDiffusion(config, backbone, Vocabulary.over(SIZE), *parts).double().eval()


def canvas(prompts: list[int], length: int) -> Canvas:
    """Rows with prompts of different lengths."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, SIZE, (len(prompts), length), generator=generator)
    for row, given in enumerate(prompts):
        tokens[row, given:] = SIZE
    return Canvas(tokens, SIZE)


def task(rows: int, **options) -> SamplingTask:
    return SamplingTask(list(range(50, 50 + rows)), SCHEDULE, **options)


def sampler(inner: str = "ancestral", **options) -> Blocks:
    return Blocks(inner=SAMPLERS.build(inner, **INNER[inner]), **options)


@torch.inference_mode()
def written(blocks, denoiser, canvas, task):
    return last_frame(blocks.generate(denoiser, canvas, task), canvas)


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("inner", ["ancestral", "first_hitting"])
def test_the_exact_denoiser_gives_the_enumerated_distribution(inner, block):
    language, rows = Language.random(size=2, length=4), 6000
    start = Canvas(torch.full((rows, 4), language.size), language.size)
    steps = {"steps": 4000} if inner == "ancestral" else {}  # one token a step
    blocks = Blocks(inner=SAMPLERS.build(inner, **steps), block=block)
    texts = written(blocks, Oracle(language, block), start, task(rows)).tokens
    counts = torch.bincount(language.index(texts, language.size), minlength=len(language.table))
    error = (language.table * (1 - language.table) / rows).sqrt()
    assert (counts / rows - language.table).abs().div(error).max() < 4.5


@pytest.mark.parametrize("block", [2, 3])
def test_blocks_of_whole_rows_keep_the_enumerated_distribution(block):
    language, rows = Language.random(size=2, length=4), 6000
    start = Canvas(torch.full((rows, 4), language.size), language.size)
    blocks = Blocks(inner=SAMPLERS.build("first_hitting"), block=block)
    texts = written(blocks, language.denoiser, start, task(rows)).tokens
    counts = torch.bincount(language.index(texts, language.size), minlength=len(language.table))
    error = (language.table * (1 - language.table) / rows).sqrt()
    assert (counts / rows - language.table).abs().div(error).max() < 4.5


@pytest.mark.parametrize(
    ("network", "inner"),
    [*(("dit", inner) for inner in INNER), ("causal", "ancestral"), ("llama", "threshold")],
)
def test_cached_blocks_equal_uncached_ones_in_ragged_batches_with_and_without_eos(network, inner):
    model, blocks = method(network), sampler(inner, window=12)
    start, job = canvas([0, 3, 4, 9, 21], 23), task(5, eos_id=EOS, watched=False)
    assert start.tokens.shape[1] > blocks.window
    cached = written(blocks, model.denoiser(), start, job)
    uncached = written(blocks, Uncached(model), start, job)
    assert torch.equal(cached.tokens, uncached.tokens)
    assert torch.equal(cached.calls, uncached.calls)
    ended = (cached.tokens == EOS) & start.open
    assert ended.any()
    for row, first in enumerate(ended.int().argmax(1).tolist()):
        if ended[row].any():  # EOS fills the blocks behind
            assert (cached.tokens[row, first // 4 * 4 + 4 :] == EOS).all()
    for row in range(5):  # a row depends on its own seed only
        alone = Canvas(start.tokens[row : row + 1], SIZE)
        own = written(blocks, model.denoiser(), alone, replace(job, seeds=[50 + row]))
        assert torch.equal(own.tokens[0], cached.tokens[row])


def test_a_text_of_any_length_and_a_last_block_that_is_short():
    model, start = method(), canvas([1, 0], 50)
    texts = written(sampler(window=16, lead=1), model.denoiser(), start, task(2)).tokens
    assert not (texts == SIZE).any()
    shorter = written(
        sampler(window=16, lead=1), model.denoiser(), canvas([1, 0], 42), task(2)
    ).tokens
    assert torch.equal(shorter[:, :40], texts[:, :40])


def test_streamed_text_never_changes_and_is_that_without_streaming():
    model, start = method(), canvas([0, 5], 16)
    for inner in ("ancestral", "remask"):
        frames = list(sampler(inner).generate(model.denoiser(), start, task(2)))
        final = frames[-1].tokens
        for frame in frames:
            masked = frame.tokens == SIZE
            settled = ~masked if frame.settled is None else frame.settled
            assert torch.equal(frame.tokens[settled], final[settled])
            open_block = masked.any(0).nonzero()
            if len(open_block):  # all blocks before the one that is open are final
                before = int(open_block[0]) // 4 * 4
                assert torch.equal(frame.tokens[:, :before], final[:, :before])
        once = written(sampler(inner), model.denoiser(), start, task(2, watched=False))
        assert torch.equal(once.tokens, final)
        assert len(frames) > 4


def test_given_tokens_stay_and_processors_see_whole_rows():
    model, start = method(), canvas([2], 12)
    start.tokens[0, 7] = 3
    seen = []

    def process(log_probabilities, z, at):
        seen.append((z.shape[1], at[1].tolist()))
        return log_probabilities

    texts = written(sampler(), model.denoiser(), start, task(1, processors=(process,))).tokens
    assert torch.equal(texts[~start.open], start.tokens[~start.open])
    assert {length for length, _ in seen} == {12}
    columns = [column for _, some in seen for column in some]
    assert sorted(columns) == start.open[0].nonzero()[:, 0].tolist()
    assert [column // 4 for column in columns] == sorted(column // 4 for column in columns)


def test_texts_are_written_in_blocks_and_gaps_are_filled_in_whole_rows():
    params, mixed = SamplingParams(), method(blocks=(4, 0))
    written = choose_sampler(params, mixed, 8)
    assert isinstance(written, Blocks) and isinstance(written.inner, Ancestral)
    assert isinstance(choose_sampler(params, mixed, 8, fills=True), Ancestral)
    assert isinstance(choose_sampler(params, method(blocks=(0,)), 8), Ancestral)
    alone = method(blocks=(4,))
    assert isinstance(choose_sampler(params, alone, 8), Blocks)
    assert isinstance(
        choose_sampler(SamplingParams(sampler="blocks"), alone, 8, None, True), Blocks
    )
    for options, fills in ((SamplingParams(), True), (SamplingParams(sampler="gibbs"), False)):
        with pytest.raises(UnmaskError, match=r"in blocks only.*give sampler blocks"):
            choose_sampler(options, alone, 8, None, fills)
    spec = SamplingParams(sampler="blocks:block=2,inner=threshold")
    assert choose_sampler(spec, mixed, 8) == Blocks(2, inner=SAMPLERS.build("threshold"))


def test_models_and_blocks_that_do_not_fit_are_refused():
    start = canvas([0], 8)
    for denoiser, blocks, message in (
        (method(blocks=(0,)).denoiser(), sampler(), "trained on whole rows only"),
        (Language.random().denoiser, sampler(), "no block size of its own: give one"),
        (method().denoiser(), sampler(block=16, window=8), "a block of 16 tokens does not fit"),
    ):
        with pytest.raises(UnmaskError, match=message):
            blocks.generate(denoiser, start, task(1))


def test_a_model_that_serves_with_few_shapes_writes_the_same_text():
    model, start = method(), canvas([2, 0], 12)
    plain = written(sampler(), model.denoiser(), start, task(2)).tokens
    model.serving = replace(model.serving, fixed=True)
    denoiser = model.denoiser()
    assert denoiser is model.denoiser() and denoiser.block == 4
    assert torch.equal(written(sampler(), denoiser, start, task(2)).tokens, plain)
    whole = written(sampler().inner, denoiser, start, task(2)).tokens
    assert not (whole == SIZE).any()
