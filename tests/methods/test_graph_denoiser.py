"""A method that serves pads to few shapes, and its results are those of the exact shapes."""

import copy

import pytest
import torch
from builders import small_method

from unmask.methods.compute import graph_denoiser as replayed
from unmask.methods.method import Serving

SIZE, LENGTH, MASK = 11, 7, 10
DIFFUSIONS = ["mdlm", "d3pm", "sedd"]


def serving(name: str, **fields: object):
    """A method that pads to few shapes on a CPU too."""
    method = small_method(name, **fields).double()
    method.serving = Serving(fixed=True)
    return method


def question(seed: int, rows: int, places: int):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(0, SIZE, (rows, LENGTH), generator=generator)
    t = torch.rand(rows, generator=generator).double()
    at = (
        torch.randint(0, rows, (places,), generator=generator),
        torch.randint(0, LENGTH, (places,), generator=generator),
    )
    return z, t, at


@pytest.mark.parametrize("most", [replayed.MOST_ELEMENTS, 4 * SIZE], ids=["few", "many"])
@pytest.mark.parametrize("name", DIFFUSIONS)
@torch.inference_mode()
def test_padded_calls_have_the_results_of_the_method(name, most, monkeypatch):
    monkeypatch.setattr(replayed, "MOST_ELEMENTS", most)
    method = serving(name)
    denoiser = method.denoiser()
    widths = set()
    features = method.backbone.features

    def counted(tokens, *args, **kwargs):
        widths.add(len(tokens))
        return features(tokens, *args, **kwargs)

    method.backbone.features = counted
    answers = [(asked, denoiser(*asked)) for asked in map(some_question, range(24))]
    assert widths <= {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20}
    for asked, answer in answers:
        torch.testing.assert_close(answer, method.log_x_theta(*asked))


def some_question(seed: int):
    return question(seed, rows=1 + seed * 5 % 17, places=1 + seed * 7 % 23)


def test_shapes_are_kept_from_text_to_text():
    method = serving("mdlm")
    assert method.denoiser() is method.denoiser()
    assert small_method("mdlm").denoiser() is not method.denoiser()


@pytest.mark.parametrize("change", ["loaded", "moved", "trained", "served again"])
def test_graphs_of_old_weights_are_dropped(change):
    mdlm, baseline = serving("mdlm"), serving("autoregressive")
    before = mdlm.denoiser()
    decoder = baseline.acquire_decoder(3, LENGTH)
    baseline.release_decoder(decoder)
    for method in (mdlm, baseline):
        if change == "loaded":
            method.load_state_dict(method.state_dict())
        elif change == "moved":
            method.to("cpu")
        elif change == "trained":
            method.train().eval()
        else:
            method.serve()
            method.serving = Serving(fixed=True)
    assert mdlm.denoiser() is not before
    assert baseline.acquire_decoder(3, LENGTH) is not decoder


@torch.inference_mode()
def test_a_copy_of_a_serving_method_is_independent():
    method, asked = serving("mdlm"), some_question(3)
    expected = method.denoiser()(*asked)
    other = copy.deepcopy(method)
    for parameter in other.parameters():
        parameter.mul_(1.1)
    assert not torch.allclose(other.denoiser()(*asked), expected)
    torch.testing.assert_close(method.denoiser()(*asked), expected)


@torch.inference_mode()
def test_two_texts_can_be_read_at_a_time():
    method = serving("autoregressive")
    z = torch.randint(0, MASK, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    rows = torch.arange(3)
    alone = [method.denoiser().decoder()(z, column, rows) for column in range(LENGTH)]
    ours, theirs = method.denoiser().decoder(), method.denoiser().decoder()
    for column in range(LENGTH):
        torch.testing.assert_close(ours(z, column, rows), alone[column])
        theirs(z.flip(0), column, rows)
    kept = ours._decoder
    del ours
    again = method.denoiser().decoder()
    torch.testing.assert_close(again(z, 2, rows), alone[2])  # the previous text has no effect
    assert again._decoder is kept


@pytest.mark.parametrize("name", [*DIFFUSIONS, "autoregressive"])
@torch.inference_mode()
def test_cast_weights_round_no_more_than_autocast_does(name, bf16):
    plain, cast = small_method(name), small_method(name)
    cast.serve(torch.bfloat16)
    z = torch.randint(0, MASK, (64, LENGTH), generator=torch.Generator().manual_seed(1))
    asked = z, torch.full((64,), 0.5).double(), (torch.arange(64), torch.full((64,), 4))
    exact = plain.denoiser()(*asked)[:, :MASK]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = plain.denoiser()(*asked)[:, :MASK]
    ours = cast.denoiser()(*asked)[:, :MASK]
    assert 0 < (ours - exact).norm() < 1.5 * (rough - exact).norm()
