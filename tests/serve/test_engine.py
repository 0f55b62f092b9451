"""Simultaneous jobs: shared network calls, the same results as alone, and an end when the client disconnects."""

import asyncio
import threading
import time
from collections import deque

import pytest
import torch
from builders import MASK_SAMPLERS
from random_models import content

from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.packed_batch import MIN_ROWS
from unmask.constraints.token_automaton import Passes
from unmask.errors import UnmaskError
from unmask.samplers import confidence as order
from unmask.samplers.core.sampler_state import SamplerState
from unmask.serve.execution import batcher as batching
from unmask.serve.execution import engine as engines
from unmask.serve.execution.engine import Busy, Closing, Engine
from unmask.serve.execution.result_queue import AHEAD, TimedOut
from unmask.serve.execution.row_parts import joined, row_parts

# analytic needs scores
ANY_ORDER = [name for name in MASK_SAMPLERS if name != "analytic"]


def job(verb: str, *args: object, **options: object):
    """A call of the API as a job of one result."""

    def work(model):
        yield getattr(model, verb)(*args, **options)

    return work


async def all_of(engine: Engine, model: str, work) -> list:
    return [item async for item in engine.run(model, work)]


def together(engine: Engine, asked: list[tuple[str, object]]) -> list[list]:
    async def gather() -> list[list]:
        return await asyncio.gather(*(all_of(engine, *one) for one in asked))

    return asyncio.run(gather())


def requests() -> list[tuple[str, object]]:
    """Texts of all lengths by all samplers, gaps, edits and constraints, from three models."""
    prompts = ["", "Once", "The", "A time", "Tom, "]
    asked: list[tuple[str, object]] = []
    for seed, name in enumerate(ANY_ORDER):
        prompt, length = prompts[seed % 5], 8 + seed
        options = {"sampler": name, "seed": seed}
        asked.append(("words", job("generate", prompt, length=length, **options)))
        if seed % 3 == 0:
            asked.append(("timed", job("generate", prompt, length=length, **options)))
            asked.append(("words", job("fill", f"{prompt} [MASK:{3 + seed}] end.", n=2, seed=seed)))
    asked += [
        ("reader", job("generate", prompt, length=20 + len(prompt), seed=seed, n=1 + seed % 2))
        for seed, prompt in enumerate(prompts)
    ]
    asked.append(("timed", job("generate", "A", sampler="analytic", seed=3, length=20, steps=3)))
    asked.append(("words", job("generate", "The", length=60, seed=1, stop=False, steps=4)))
    asked.append(("words", job("edit", "The old cat sat.", remask_uncertain=4, seed=5)))
    asked.append(("words", job("generate", regex="[A-Z][a-z]+", length=12, seed=2)))
    return asked


def test_simultaneous_jobs_have_the_results_of_jobs_alone(engine):
    asked = requests()
    before = engine.counts.passes, engine.counts.calls
    found = together(engine, asked)
    passes, calls = engine.counts.passes - before[0], engine.counts.calls - before[1]
    assert passes < 0.8 * calls, (passes, calls)  # calls were shared
    for one, ((results,),) in zip(asked, zip(found, strict=True), strict=True):
        ((alone,),) = together(engine, [one])
        assert [content(result) for result in alone] == [content(result) for result in results]


def test_frames_and_scores_are_the_same_to_the_bit(engine):
    def frames(seed: int):
        return lambda model: model.stream("Once", length=9 + seed, seed=seed, n=2)

    asked = [(name, frames(seed)) for seed in range(3) for name in ("words", "timed")]
    scored = [("words", job("perplexity", ["The cat sat.", "A dog."], seed=s)) for s in range(2)]
    found = together(engine, asked + scored)
    for one, items in zip(asked + scored, found, strict=True):
        (alone,) = together(engine, [one])
        if one in asked:
            assert len(items) == len(alone) > 3
            for ours, theirs in zip(items, alone, strict=True):
                assert torch.equal(ours.tokens, theirs.tokens)
                assert torch.equal(ours.confidence, theirs.confidence)
        else:
            assert (items[0].nats, items[0].error) == (alone[0].nats, alone[0].error)


@pytest.mark.parametrize("name", ["words", "timed", "reader"])
def test_the_engine_generates_the_texts_of_the_model(engine, models, name):
    options = {"length": 30, "seed": 4, "n": 2}
    ((results,),) = together(engine, [(name, job("generate", "The", **options))])
    direct = models[name].generate("The", **options)
    assert [content(result) for result in results] == [content(result) for result in direct]
    text = ["The cat sat on the mat."]
    ((bound,),) = together(engine, [(name, job("perplexity", text, draws=4))])
    assert bound.nats == models[name].perplexity(text, draws=4).nats


def test_jobs_of_one_pass_share_the_head(engine, models, monkeypatch):
    method = models["words"].method
    heads: list[int] = []
    real = type(method).log_mean
    monkeypatch.setattr(
        type(method), "log_mean", lambda self, h: heads.append(len(h)) or real(self, h)
    )
    before = engine.counts.passes, engine.counts.calls
    asked = [("words", job("generate", "The", length=20, seed=seed)) for seed in range(8)]
    together(engine, asked)
    passes, calls = engine.counts.passes - before[0], engine.counts.calls - before[1]
    assert len(heads) == passes < calls
    assert min(heads) >= MIN_ROWS  # otherwise rounding would depend on the other jobs


def test_calls_of_one_kind_are_batched(models):
    whole = Call(torch.zeros(1, 9))
    places = whole._replace(at=torch.arange(2))
    words, others = models["words"].method, models["timed"].method
    kinds = [(words, places), (words, whole), (others, places), (words, None), (words, places)]
    ticket = batching.Ticket(threading.Semaphore())
    asked = [batching.BatchItem(ticket, method, 9, call, print) for method, call in kinds]
    pending = deque(asked)
    assert batching.next_batch(pending, 1) == [asked[0], asked[4]]
    assert list(pending) == asked[1:4]


def test_jobs_compute_in_turns_between_their_calls(models, monkeypatch):
    monkeypatch.setattr(batching, "PATIENCE", 60.0)
    computing: list[int] = []
    seen: list[int] = []

    def work(model):
        for _ in model.stream("The", length=12, seed=0):
            computing.append(1)
            seen.append(len(computing))
            time.sleep(0.001)
            computing.pop()
            yield 1

    with Engine(models, active=6) as engine:
        together(engine, [("words", work)] * 6)
    assert len(seen) > 30
    assert max(seen) == 1


@pytest.mark.parametrize("why", ["computes", "is not read"])
def test_other_jobs_do_not_wait_long_for_a_job_that(models, monkeypatch, why):
    monkeypatch.setattr(batching, "PATIENCE", 0.01 if why == "computes" else 60.0)
    hold, inside = threading.Event(), threading.Event()

    def idle(model):
        frames = model.stream("The", length=12, seed=0)
        next(frames)  # now the job has its turn
        inside.set()
        while why == "computes" and not hold.wait(0.01):
            pass
        yield from range(2 * AHEAD)

    async def ask(engine: Engine) -> None:
        reading = engine.run("words", idle)
        first = asyncio.ensure_future(anext(reading))
        await asyncio.to_thread(inside.wait, 5)
        if why == "is not read":
            await first
        async with asyncio.timeout(20):
            assert await all_of(engine, "words", job("generate", "The", length=12, seed=1))
        hold.set()
        await first
        await reading.aclose()

    with Engine(models) as engine:
        asyncio.run(ask(engine))


def test_a_turn_is_released_once_for_every_end_of_a_job(models):
    blocked = threading.Event()

    def takes_turn(model):
        return next(model.stream("The", length=12, seed=0))

    def fails(model):
        yield takes_turn(model)
        raise ValueError("its own fault")

    def is_left(model):
        takes_turn(model)
        for number in range(2 * AHEAD):
            if number == AHEAD + 1:  # one was read, so this is the first frame without room
                blocked.set()
            yield number

    async def ask(engine: Engine) -> None:
        assert await all_of(engine, "words", job("generate", "The", length=12, seed=1))
        with pytest.raises(ValueError, match="its own fault"):
            await all_of(engine, "words", fails)
        reading = engine.run("words", is_left)
        await anext(reading)
        await asyncio.to_thread(blocked.wait, 20)
        await asyncio.sleep(0.05)
        await reading.aclose()

    with Engine(models) as engine:
        asyncio.run(ask(engine))
    assert engine._turns.acquire(blocking=False)
    assert not engine._turns.acquire(blocking=False)


def test_a_closed_iterator_ends_its_job_at_the_next_call(engine):
    seen: list[int] = []
    left, ended = threading.Event(), threading.Event()

    def work(model):
        try:
            frames = model.stream("The", length=2048, stop=False, seed=0)
            yield next(frames)
            left.wait(20)
            for number, frame in enumerate(frames):
                seen.append(number)
                yield frame
        finally:
            ended.set()

    async def leave() -> None:
        running = engine.run("words", work)
        await anext(running)
        await running.aclose()

    asyncio.run(leave())
    passes = engine.counts.passes
    left.set()
    assert ended.wait(20)
    assert seen == []
    assert engine.counts.passes == passes
    while engine.jobs:
        time.sleep(0.01)


@pytest.mark.parametrize("busy", ["a constraint", "steps without a call"])
def test_a_job_outside_the_network_ends_too(engine, monkeypatch, busy):
    turns: list[int] = []
    inside, left, ended = threading.Event(), threading.Event(), threading.Event()

    def turn() -> None:
        turns.append(len(turns))
        inside.set()
        left.wait(20)

    class Slow(SamplerState):
        @property
        def masked(self):
            turn()
            return SamplerState.masked.fget(self)

    allowed = Passes.allowed

    def slowly(self, z, at):
        turn()
        return allowed(self, z, at)

    if busy == "a constraint":
        monkeypatch.setattr(Passes, "allowed", slowly)
        options = {"sampler": "ancestral:steps=1", "ban": ["xyz"]}
    else:
        monkeypatch.setattr(order, "SamplerState", Slow)
        options = {"sampler": "confidence:steps=1000"}

    def work(model):
        try:
            yield model.fill("Tom [MASK:9]", **options)
        finally:
            ended.set()

    async def leave() -> None:
        reading = asyncio.create_task(engine.one("words", work))
        await asyncio.to_thread(inside.wait, 5)
        reading.cancel()
        await asyncio.wait([reading])

    asyncio.run(leave())
    left.set()
    assert ended.wait(20)
    assert len(turns) <= 2  # turns of one step


def test_a_cancelled_job_that_has_not_begun_frees_its_place(models):
    hold, begun = threading.Event(), []

    def waiting(model):
        begun.append(1)
        hold.wait(20)
        yield 1

    async def leave(engine: Engine) -> None:
        first = asyncio.create_task(engine.one("words", waiting))
        second = asyncio.create_task(engine.one("words", waiting))
        while len(begun) < 1 or engine.jobs < 2:
            await asyncio.sleep(0.01)
        assert engine.full
        second.cancel()
        await asyncio.wait([second])
        assert engine.jobs == 1
        third = asyncio.create_task(engine.one("words", waiting))
        await asyncio.sleep(0)
        hold.set()
        assert await first == await third == 1
        assert len(begun) == 2

    with Engine(models, active=1, waiting=1, workers=1) as engine:
        asyncio.run(leave(engine))


@pytest.mark.parametrize(
    "limits",
    [
        {"active": 0},
        {"waiting": -1},
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"workers": 0},
        {"workers": -1},
    ],
)
def test_an_engine_without_capacity_is_refused(models, limits):
    with pytest.raises(UnmaskError, match=f"{next(iter(limits))} must be"):
        Engine(models, **limits)


def test_more_jobs_than_there_is_room_for_are_refused(models):
    hold = threading.Event()

    def waiting(model):
        hold.wait(20)
        yield 1

    async def fill(engine: Engine) -> list:
        jobs = [asyncio.create_task(all_of(engine, "words", waiting)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await all_of(engine, "words", waiting)
        hold.set()
        found = await asyncio.gather(*jobs)
        return [*found, await all_of(engine, "words", waiting)]

    with Engine(models, active=2, waiting=1) as engine:
        assert asyncio.run(fill(engine)) == [[1]] * 4


def test_jobs_with_constraints_leave_half_of_the_places_to_others(models):
    hold = threading.Event()

    def compiling(model):
        hold.wait(20)
        yield 1

    async def constrained(engine: Engine) -> list:
        return [one async for one in engine.run("words", compiling, constrained=True)]

    async def ask(engine: Engine) -> tuple[list, list]:
        jobs = [asyncio.create_task(constrained(engine)) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="2 requests with constraints"):
            await constrained(engine)
        between = await all_of(engine, "words", job("generate", "T", length=8))
        hold.set()
        return between, await asyncio.gather(*jobs)

    with Engine(models, active=2, waiting=2) as engine:
        between, last = asyncio.run(ask(engine))
    assert len(between) == 1 and last == [[1], [1]]


def test_time_is_limited(models):
    async def ask(engine: Engine) -> None:
        with pytest.raises(TimedOut):
            await all_of(engine, "words", lambda model: model.stream("T", length=4096, stop=False))

    with Engine(models, timeout=0.3) as engine:
        asyncio.run(ask(engine))


def test_draining_lets_jobs_finish_and_ends_those_that_do_not(models):
    def short(model):
        return model.stream("The", length=20, stop=False, steps=4)

    def endless(model):
        while True:
            yield from short(model)

    async def drain(engine: Engine, job, grace: float) -> list:
        running = asyncio.create_task(all_of(engine, "words", job))
        while not engine.jobs:
            await asyncio.sleep(0)
        await engine.drain(grace)
        with pytest.raises(Closing):
            await all_of(engine, "words", short)
        return await running

    with Engine(models) as engine:
        assert len(asyncio.run(drain(engine, short, 20))) == 4
    with Engine(models) as engine, pytest.raises(Closing):
        asyncio.run(drain(engine, endless, 0.2))


def test_a_mistake_fails_only_its_own_job(engine):
    asked = [
        ("words", job("generate", "The", length=20, seed=1)),
        ("words", job("generate", "The", temperature=-1.0)),
        ("../words", job("generate", "The")),
    ]

    async def gather() -> list:
        runs = (all_of(engine, *one) for one in asked)
        return await asyncio.gather(*runs, return_exceptions=True)

    found = asyncio.run(gather())
    assert len(found[0]) == 1
    assert all(isinstance(error, UnmaskError) for error in found[1:])
    assert "unknown model '../words'" in str(found[2])


def test_a_failed_call_does_not_fail_the_other_jobs_of_its_batch(engine, models, monkeypatch):
    backbone = models["words"].method.backbone
    real = type(backbone).together

    def fails(self, calls):
        if any(call.inputs.shape[1] == 13 for call in calls):
            raise RuntimeError("no memory left")
        return real(self, calls)

    monkeypatch.setattr(type(backbone), "together", fails)
    asked = [("words", job("generate", "T", length=n, seed=n)) for n in (11, 12, 13, 14)]

    async def gather() -> list:
        runs = (all_of(engine, *one) for one in asked)
        return await asyncio.gather(*runs, return_exceptions=True)

    found = asyncio.run(gather())
    assert [isinstance(one, RuntimeError) for one in found] == [False, False, True, False]


def test_a_worker_survives_every_error_of_its_network(models, monkeypatch):
    words = models["words"].method
    work = job("generate", "T", length=8)
    with Engine(models, workers=1, timeout=10) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(type(words), "arithmetic", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                together(engine, [("words", work)])
        with monkeypatch.context() as patch:
            real = type(words.backbone).together
            patch.setattr(type(words.backbone), "together", lambda *asked: 2 * real(*asked))
            with pytest.raises(ValueError, match="zip"):
                together(engine, [("words", work)])
        assert together(engine, [("words", work)])


def test_a_call_of_many_rows_is_computed_in_parts_with_the_same_bits(models, monkeypatch):
    asked = [
        ("words", job("generate", "The", length=20, seed=1, n=5)),
        ("timed", job("fill", "Tom [MASK:7] end.", n=4, seed=2)),
        ("words", job("perplexity", ["The cat sat.", "A dog."], seed=3, draws=8)),
        ("reader", job("generate", "A", length=12, seed=4, n=3)),
    ]
    found, sizes = [], []
    real = batching.packed_pass

    def recorded(method, calls):
        sizes.append(sum(call.inputs.numel() for call in calls))
        return real(method, calls)

    monkeypatch.setattr(batching, "packed_pass", recorded)
    for most in (512, 40):
        monkeypatch.setitem(batching.MOST_TOKENS, "cpu", most)
        sizes.clear()
        with Engine(models, workers=1) as engine:
            results = [together(engine, [one])[0][0] for one in asked]
        found.append([str(content(one)) for texts in results[:2] for one in texts])
        found[-1] += [str((results[2].nats, results[2].error)), *map(str, map(content, results[3]))]
        assert (max(sizes) <= 40) == (most == 40)
    assert found[0] == found[1]


def test_parts_of_a_call_keep_the_order_of_its_tokens():
    tokens, at = torch.arange(24).view(6, 4), torch.tensor([21, 3, 8, 9, 2])
    whole = Call(tokens, torch.arange(6.0), at=at)
    parts = list(row_parts(whole, 8))
    assert [len(part.call.at) for part in parts] == [2, 2, 1]
    results = [part.call.inputs.flatten()[part.call.at] for part in parts]
    assert joined(parts, results).tolist() == at.tolist()
    assert parts[1].call.condition.tolist() == [2, 3]
    parts = list(row_parts(whole._replace(at=None), 11))
    assert torch.equal(joined(parts, [part.call.inputs for part in parts]), tokens)
    for one in (whole._replace(at=at[:0]), whole._replace(state=object())):
        (only,) = row_parts(one, 4)
        assert only.call is one


@pytest.mark.parametrize("end", ["time limit", "client"])
def test_a_slot_is_free_while_the_pass_of_its_stopped_job_is_computed(models, monkeypatch, end):
    """The job does not wait for the pass, and the pass ends at the next block."""
    inside, left, blocks = threading.Event(), threading.Event(), []
    real = type(models["words"].method.backbone.blocks[0]).forward

    def slowly(self, *given, **more):
        blocks.append(1)
        inside.set()
        left.wait(20)
        return real(self, *given, **more)

    async def ask(engine: Engine) -> None:
        asking = asyncio.ensure_future(all_of(engine, "words", job("generate", "T", length=8)))
        await asyncio.to_thread(inside.wait, 20)
        if end == "client":
            asking.cancel()
        with pytest.raises(TimedOut if end == "time limit" else asyncio.CancelledError):
            await asking
        async with asyncio.timeout(1):
            while engine.jobs:
                await asyncio.sleep(0.01)

    with Engine(models, timeout=0.3 if end == "time limit" else 20, workers=1) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(type(models["words"].method.backbone.blocks[0]), "forward", slowly)
            asyncio.run(ask(engine))
            left.set()
            while engine._batcher.counts.passes == 0:
                time.sleep(0.01)
        assert len(blocks) == 1
        assert together(engine, [("words", job("generate", "T", length=8, seed=1))])
    assert not models["words"].method.backbone.blocks[0]._forward_pre_hooks


def test_an_engine_whose_jobs_make_no_progress_is_stalled(models, monkeypatch):
    hold = threading.Event()

    def stuck(model):
        hold.wait(20)
        yield 1

    async def ask(engine: Engine) -> None:
        assert engine.idle_seconds == 0
        for _ in range(2):
            with pytest.raises(TimedOut):
                await all_of(engine, "words", stuck)
        assert (engine.running, engine.stopped, engine.jobs) == (2, 2, 2)
        assert not engine.stalled and engine.full and not engine.ready
        await asyncio.sleep(0.6)
        assert engine.stalled and engine.idle_seconds > 0.6
        hold.set()
        while engine.jobs:
            await asyncio.sleep(0.01)
        assert not engine.stalled and engine.ready
        assert await all_of(engine, "words", job("generate", "T", length=8))

    monkeypatch.setattr(engines, "STALL", 0.4)
    with Engine(models, active=2, waiting=0, timeout=0.2) as engine:
        asyncio.run(ask(engine))


def test_a_job_without_a_thread_is_refused_and_leaves_its_place(models, monkeypatch):
    def none(*given):
        raise RuntimeError("can't start new thread")

    with Engine(models, active=1, waiting=0) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine._pools[False], "submit", none)
            with pytest.raises(Busy, match="cannot start a thread"):
                together(engine, [("words", job("generate", "T", length=8))])
        assert engine.jobs == 0
        assert together(engine, [("words", job("generate", "T", length=8))])
