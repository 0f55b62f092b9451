"""Samplers draw from the enumerated distribution also through padded shapes and CUDA graphs."""

from dataclasses import replace

import pytest
import torch
from builders import MASK_SAMPLERS, schedule, small_method
from drafts import MASK, SIZE, build, canvas_of, counts, every_sampler, smooth, task, title
from kit import Language, p_value, reverse_process, table_method

from unmask.methods.method import Serving
from unmask.samplers import left_to_right
from unmask.samplers.ancestral import Ancestral, FirstHitting
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.left_to_right import LeftToRight

LANGUAGE = Language.random()
RARELY = 1e-4
SEEDS = list(range(2000))
BATCH = 37  # not a size to which shapes are padded
ORDERS = [name for name in MASK_SAMPLERS if name != "analytic"]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@torch.inference_mode()
def texts(method, sampler, seeds: list[int], length: int, **fields: object) -> torch.Tensor:
    """Tokens that a method generates, some rows at a time."""
    denoiser, size = method.denoiser(), method.vocabulary.size
    parts = []
    for first in range(0, len(seeds), BATCH):
        some = seeds[first : first + BATCH]
        start = torch.full((len(some), length), size - 1, device=method.device)
        canvas = Canvas(start, size - 1)
        frames = sampler.generate(
            denoiser, canvas, SamplingTask(some, method.schedule, watched=False, **fields)
        )
        parts.append(last_frame(frames, canvas).tokens.cpu())
    return torch.cat(parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["mdlm", "sedd"])
@pytest.mark.parametrize("sampler", [Ancestral(3), FirstHitting()], ids=lambda s: type(s).__name__)
def test_samples_through_few_shapes_follow_the_enumerated_distribution(sampler, name, device):
    noise = schedule("loglinear")
    method = table_method(name, LANGUAGE, noise).to(device)
    method.serving = Serving(fixed=True)
    target = LANGUAGE.table
    if isinstance(sampler, Ancestral):
        target = reverse_process(LANGUAGE, noise, 3)
    assert p_value(counts(LANGUAGE, texts(method, sampler, SEEDS, 3)), target) > RARELY


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("timed", [False, True], ids=["blind", "timed"])
@pytest.mark.parametrize("which", ORDERS)
def test_the_text_is_that_of_the_plain_path(which, timed, device):
    plain, fast = (
        small_method("mdlm", time_conditioning=timed).double().to(device) for _ in range(2)
    )
    fast.serving = Serving(fixed=True)
    sampler = build(which, steps=6, window=6, stride=2)
    seeds = list(range(2 * BATCH))
    expected = texts(plain, sampler, seeds, 9, banned=(2,))
    assert torch.equal(texts(fast, sampler, seeds, 9, banned=(2,)), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("eos", [None, 3])
def test_a_causal_text_is_that_of_the_plain_path(eos, device, monkeypatch):
    monkeypatch.setattr(left_to_right, "eos_interval", lambda state: 1)
    plain, fast = (small_method("autoregressive").double().to(device) for _ in range(2))
    seeds = list(range(2 * BATCH))
    expected = texts(plain, LeftToRight(), seeds, 140, eos_id=eos)
    fast.serving = Serving(fixed=True)
    monkeypatch.setattr(left_to_right, "eos_interval", lambda state: 4)
    assert torch.equal(texts(fast, LeftToRight(), seeds, 140, eos_id=eos), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "sampler"), [("mdlm", Ancestral(6)), ("autoregressive", LeftToRight())]
)
def test_a_processor_is_called_also_with_graphs(name, sampler, device):
    def barring(log_probabilities, z, at):
        return log_probabilities.index_fill(1, torch.tensor([1], device=device), -torch.inf)

    method = small_method(name).double().to(device)
    method.serving = Serving(fixed=True)
    seeds = list(range(BATCH))
    assert (texts(method, sampler, seeds, 9) == 1).any()
    assert not (texts(method, sampler, seeds, 9, processors=(barring,)) == 1).any()


def test_checking_for_eos_less_often_changes_nothing(monkeypatch):
    canvas, rules = canvas_of(5, 24, 30, share=0.2), task(24, eos_id=2)
    at_once = last_frame(LeftToRight().generate(smooth, canvas, rules), canvas)
    assert (at_once.calls < canvas.open.sum(1)).any()
    for patience in (2, 7, 100):
        monkeypatch.setattr(left_to_right, "eos_interval", lambda state, n=patience: n)
        late = last_frame(LeftToRight().generate(smooth, canvas, rules), canvas)
        for field in ("tokens", "confidence", "calls", "t"):
            assert torch.equal(getattr(late, field), getattr(at_once, field)), field


@pytest.mark.parametrize(("name", "fields"), list(every_sampler()), ids=title)
def test_the_last_frame_is_the_same_if_frames_are_not_watched(name, fields):
    sampler, canvas = build(name, steps=6, window=5, stride=3, **fields), canvas_of(2, 8, 9)
    for rules in (task(8), task(8, strategy="hybrid", tail=0.5)):
        seen = last_frame(sampler.generate(smooth, canvas, rules), canvas)
        alone = replace(rules, watched=False)
        unseen = last_frame(sampler.generate(smooth, canvas, alone), canvas)
        for field in ("tokens", "confidence", "calls", "t"):
            assert torch.equal(getattr(seen, field), getattr(unseen, field)), field


def test_frames_that_are_not_watched_are_not_copied():
    canvas = Canvas(torch.full((3, 8), MASK), MASK)
    frames = list(Ancestral(6).generate(smooth, canvas, task(3, watched=False)))
    assert len(frames) > 2
    assert len({frame.tokens.data_ptr() for frame in frames}) == 1


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("sampler", [Ancestral(20), FirstHitting(), LeftToRight()])
@torch.inference_mode()
def test_the_host_never_waits_for_the_device(sampler):
    name = "autoregressive" if isinstance(sampler, LeftToRight) else "mdlm"
    method = small_method(name, size=SIZE).to("cuda")
    method.serve()
    rules = SamplingTask(list(range(5)), method.schedule, banned=(2,), watched=False)
    canvas = Canvas(torch.full((5, 40), SIZE - 1, device="cuda"), SIZE - 1)
    for _ in range(2):  # shapes are captured in the first
        frames = sampler.generate(method.denoiser(), canvas, rules)
        next(frames)
        last_frame(frames, canvas)
    frames = sampler.generate(method.denoiser(), canvas, rules)
    next(frames)
    torch.cuda.set_sync_debug_mode("error")
    try:
        last_frame(frames, canvas)
    finally:
        torch.cuda.set_sync_debug_mode("default")
