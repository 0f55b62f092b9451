"""Time of the package's ancestral sampler against the authors' T-step sampler, which draws every token at every step.

Prints one JSON line for each batch size and form of the authors' sampler. The time of a step hardly depends on the
step. Therefore `--timed` steps of each sampler are timed, in turn in one process. The median is multiplied by the
number of steps. `--timed 1000` times all of them.
"""

import json
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.room import script_parser
from benchmarks.speed.dense_logits import authors_log_x_theta, model
from unmask.methods.mdlm import MDLM
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import At

STEPS, LENGTH, VOCABULARY = 1000, 256, 8_192
FORMS = {"naive": "ddpm", "cached": "ddpm_cache"}  # with the authors' names
BATCHES = (1, 4)


class Naive:
    """The authors' sampler: `ddpm`, or `ddpm_cache`, which calls the network only after a change."""

    def __init__(self, method: MDLM, steps: int) -> None:
        self.method, self.steps = method, steps

    def x_theta(self, z_t: Tensor) -> Tensor:
        """Probabilities over the vocabulary at every position."""
        backbone = self.method.backbone
        logits = backbone.logits(backbone.features(z_t))
        return authors_log_x_theta(z_t, logits, self.method.vocabulary.mask_id).exp()

    def update(self, z_t: Tensor, x_theta: Tensor, step: int) -> Tensor:
        """z_s, drawn by Gumbel noise at every position from the posterior over all tokens and MASK."""
        t = 1 - step / self.steps
        s = t - 1 / self.steps
        mask_id = self.method.vocabulary.mask_id
        q = x_theta * (t - s)  # 1 - alpha_t is t
        q[:, :, mask_id] = s
        gumbel = 1e-10 - (torch.rand_like(q) + 1e-10).log()
        return torch.where(z_t == mask_id, (q / gumbel).argmax(-1), z_t)

    def seconds(self, rows: int, length: int, step: int) -> dict[str, float]:
        """Seconds of the network call and of the draw of one step, from a random state of that step."""
        v = self.method.vocabulary
        clean = torch.randint(0, v.mask_id, (rows, length))
        z_t = torch.where(torch.rand(rows, length) < 1 - step / self.steps, v.mask_id, clean)
        start = time.perf_counter()
        x_theta = self.x_theta(z_t)
        called = time.perf_counter()
        self.update(z_t, x_theta, step)
        return {"call": called - start, "draw": time.perf_counter() - called}


class Ours:
    """The package's sampler, frame by frame."""

    def __init__(self, method: MDLM, rows: int, length: int, steps: int) -> None:
        mask_id = method.vocabulary.mask_id
        self.method, self.sampler = method, Ancestral(steps)
        self.canvas = Canvas(torch.full((rows, length), mask_id), mask_id)
        self.plan = SamplingTask(list(range(rows)), method.schedule, watched=False)

    def frames(self) -> Iterator[Frame]:
        return self.sampler.generate(self.method.denoiser(), self.canvas, self.plan)

    def count(self) -> int:
        """The number of frames. It does not depend on the network, so a constant one is used."""
        size = self.method.vocabulary.size

        def anything(z_t: Tensor, t: Tensor, at: At) -> Tensor:
            probabilities = torch.zeros(len(at[0]), size)
            probabilities[:, 1:] = -torch.inf
            return probabilities

        return sum(1 for _ in self.sampler.generate(anything, self.canvas, self.plan))


@torch.inference_mode()
def check(method: MDLM, length: int) -> None:
    """Checks that both samplers use the same probabilities."""
    mask_id = method.vocabulary.mask_id
    z_t = torch.where(torch.rand(2, length) < 0.5, mask_id, torch.randint(0, mask_id, (2, length)))
    at = (z_t == mask_id).nonzero(as_tuple=True)
    ours = method.log_x_theta(z_t, torch.full((2,), 0.5), at).exp()
    theirs = Naive(method, STEPS).x_theta(z_t)[at]
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-8), (ours - theirs).abs().max()


def changes(rows: int, length: int, steps: int) -> int:
    """The number of steps of the naive sampler that reveal a token of the batch; uniform under loglinear noise."""
    return len(torch.randint(0, steps, (rows * length,)).unique())


@torch.inference_mode()
def measure(method: MDLM, rows: int, length: int, steps: int, timed: int) -> dict[str, float]:
    """Seconds of a batch with each sampler."""
    method.serve()  # as in a loaded model; both samplers call this network
    naive, ours = Naive(method, steps), Ours(method, rows, length, steps)
    count = ours.count()
    frames = ours.frames()
    taken: dict[str, list[float]] = {"call": [], "draw": [], "frame": []}
    for step in range(0, steps, -(-steps // timed)):
        for part, seconds in naive.seconds(rows, length, step).items():
            taken[part].append(seconds)
        start = time.perf_counter()
        if next(frames, None) is not None:
            taken["frame"].append(time.perf_counter() - start)
    per = {part: statistics.median(seconds[1:] or seconds) for part, seconds in taken.items()}
    calls = changes(rows, length, steps)
    return {
        "ours": count * per["frame"],
        "naive": steps * (per["call"] + per["draw"]),
        "cached": calls * per["call"] + steps * per["draw"],
    }


def rows(batch: int, seconds: dict[str, float], timed: int) -> Iterator[dict]:
    """Rows that compare the package's sampler with each naive form."""
    for form, name in FORMS.items():
        yield {
            "batch": batch,
            "naive": name,
            "ours_seconds_a_sequence": round(seconds["ours"] / batch, 2),
            "naive_seconds_a_sequence": round(seconds[form] / batch, 2),
            "speedup": round(seconds[form] / seconds["ours"], 2),
            "steps_timed": timed,
        }


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--timed", type=int, default=100, help="steps of each sampler that are timed")
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=STEPS)
    add("--length", type=int, default=LENGTH)
    add("--vocabulary", type=int, default=VOCABULARY)
    add("--batch", type=int, nargs="+", default=BATCHES)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    timed = min(args.timed, args.steps)
    method = model(args.vocabulary, dropout=0.0).eval()
    check(method, args.length)
    for batch in args.batch:
        for row in rows(batch, measure(method, batch, args.length, args.steps, timed), timed):
            print(json.dumps(row), flush=True)
