"""Mamba and Hyena: their operators, their initial weights and their states."""

import pytest
import torch
from builders import known
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.compile import recompute_blocks
from unmask.backbones.layers.state import RecurrentState
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.extensions.dna.backbones.hyena import Hyena, HyenaBlock
from unmask.extensions.dna.backbones.mamba import BiMamba, Mamba
from unmask.methods.method import METHODS, Method
from unmask.randomness import RowStream
from unmask.runtime.device import autocast, emulation
from unmask.shapes import Batch
from unmask.training.optimizer import NamedAdamW
from unmask.training.training_config import TrainingConfig
from unmask.vocabulary import Vocabulary

VOCABULARY = Vocabulary(9, 8)
X = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(0))


def mamba(kind: type[Mamba] = Mamba, **fields: object) -> Mamba:
    torch.manual_seed(0)
    return kind(kind.Config(width=16, depth=3, states=4, **fields), VOCABULARY).double()


def test_the_past_of_mamba_is_exactly_independent_of_the_future():
    built = mamba()
    for cut in (1, 17, 39):
        changed = X.clone()
        changed[:, cut:] = (X[:, cut:] + 1) % 9
        assert torch.equal(built.features(changed)[:, :cut], built.features(X)[:, :cut])


def test_the_state_of_mamba_has_one_size_for_all_lengths():
    built, sizes = mamba(), []
    state = built.new_state(2, 40)
    with torch.no_grad():
        for part in (slice(0, 1), slice(1, 30), slice(30, 40)):
            h = built.features(X[:, part], state=state)
            sizes.append({key: tuple(x.shape) for key, x in state.layers.items()})
        torch.testing.assert_close(h, built.features(X)[:, 30:])
    assert isinstance(state, RecurrentState) and sizes[0] == sizes[1] == sizes[2]
    assert sum(x.numel() for x in state.layers.values()) == 2 * 3 * 32 * (4 + 3)


def test_initial_weights_are_those_of_mamba():
    built = Mamba(Mamba.Config(), VOCABULARY)
    [ssm] = built.blocks[0].directions
    torch.testing.assert_close(-ssm.A_log.exp()[0], -torch.arange(1.0, 17))
    steps = F.softplus(ssm.dt_proj.bias)
    assert steps.min() >= 0.9e-3 and steps.max() <= 0.11 and steps.std() > 0.01
    assert (ssm.D == 1).all()
    assert built.head.weight is built.embedding.weight


def test_decay_rates_and_filters_have_no_weight_decay():
    for built in (mamba(BiMamba), Hyena(Hyena.Config(width=16), VOCABULARY)):
        groups = NamedAdamW(built, TrainingConfig(weight_decay=0.1)).adamw.param_groups
        decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        names = {name for name, p in built.named_parameters() if id(p) in decayed}
        assert any(name.endswith("in_proj.weight") for name in names)
        assert not any("A_log" in name or "filter" in name for name in names)


def test_both_directions_are_two_mambas_that_share_projections():
    both = mamba(BiMamba)
    block = both.blocks[0]
    x = both.embedding(X)
    ahead, back = (mamba().blocks[0] for _ in range(2))
    for one, part in ((ahead, block.directions[0]), (back, block.directions[1])):
        shared = {name: value for name, value in block.state_dict().items() if "direct" not in name}
        own = {f"directions.0.{name}": value for name, value in part.state_dict().items()}
        one.load_state_dict(shared | own)
    args = (0, None, None, None)
    expected = ahead(x, *args) - x + (back(x.flip(1), *args) - x.flip(1)).flip(1)
    torch.testing.assert_close(block(x, *args) - x, expected)


@pytest.mark.parametrize("kind", [Mamba, BiMamba])
def test_recomputed_blocks_have_the_same_gradients(kind):
    found = []
    for wanted in (False, True):
        built = mamba(kind).train()
        recompute_blocks(built, wanted)
        built.features(X).sin().sum().backward()
        found.append(built.blocks[0].in_proj.weight.grad)
    torch.testing.assert_close(*found)


def test_mambapy_has_the_same_features():
    theirs = pytest.importorskip("mambapy.mamba")
    built = mamba()
    config = theirs.MambaConfig(d_model=16, n_layers=3, d_state=4)
    other = theirs.Mamba(config).double()
    weights = {}
    for name, value in built.blocks.state_dict().items():
        name = name.replace("directions.0.", "").replace("convolution", "conv1d")
        layer, _, rest = name.partition(".")
        part = rest if rest.startswith("norm") else f"mixer.{rest}"
        weights[f"layers.{layer}.{part}"] = value
    other.load_state_dict(weights)
    torch.testing.assert_close(built.norm(other(built.embedding(X))), built.features(X))


def test_the_long_convolution_is_the_sum_of_its_definition():
    torch.manual_seed(0)
    block = HyenaBlock(Hyena.Config(width=6, positions=64)).double()
    v = torch.randn(2, 21, 6, dtype=torch.float64)
    k = block.filter(21, v.device, v.dtype)
    expected = torch.stack(
        [sum(k[i - j] * v[:, j] for j in range(i + 1)) + block.D * v[:, i] for i in range(21)], 1
    )
    torch.testing.assert_close(block._convolved(v), expected)
    assert k.abs().amax(1)[0] > 0
    longer = block.filter(64, v.device, v.dtype)
    torch.testing.assert_close(
        longer[:21], k
    )  # the values of a filter do not depend on the length of the row


def test_hyena_has_no_state_and_reads_the_text_again():
    built = Hyena(Hyena.Config(width=16, positions=40), VOCABULARY).eval()
    assert built.recomputes and not Mamba.recomputes
    state = built.new_state(2, 40)
    h = torch.cat([built.features(part, state=state) for part in X.split([1, 30, 9], 1)], 1)
    torch.testing.assert_close(h, built.features(X), rtol=1e-4, atol=1e-5)
    assert state.crop(12) == 12
    rest = built.features(X[:, 12:20], state=state)
    torch.testing.assert_close(rest, built.features(X[:, :20])[:, 12:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Mamba, BiMamba, Hyena])
def test_autocast_stays_near_float32(kind):
    torch.manual_seed(0)
    built = kind(kind.Config(width=16, depth=2), VOCABULARY)
    exact = built.features(X)
    with emulation(torch.device("cpu"), "bf16"), autocast(torch.device("cpu"), "bf16"):
        h = built.features(X)
        h.float().square().mean().backward()
    assert (h - exact).abs().max() < 0.1
    assert all(torch.isfinite(p.grad).all() for p in built.parameters() if p.grad is not None)


PAIRS = [
    *(("autoregressive", "mamba"), ("autoregressive", "hyena"), ("mdlm", "bimamba")),
    *(("mdlm", "caduceus"), ("sedd", "caduceus"), ("d3pm", "caduceus")),
]


def method_of(name: str, network: str) -> Method:
    torch.manual_seed(0)
    kind, backbone = METHODS[name], BACKBONES[network]
    shape = {"width": 16, "depth": 1, "states": 4, "condition_width": 8}
    shape["time_conditioning"] = name == "sedd"
    vocabulary = Vocabulary(9, 8, complement_ids=(*range(8)[::-1], 8))
    built = backbone(backbone.Config(**known(backbone.Config, shape)), vocabulary)
    parts = SCHEDULES.build("loglinear"), TIME_SAMPLERS.build("stratified")
    return kind(kind.Config(), built, vocabulary, *parts)


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_a_few_steps_of_training_lower_the_loss(name, network):
    method, losses = method_of(name, network), []
    rate = 0.01 if network == "hyena" else 0.05
    optimizer = torch.optim.AdamW(method.parameters(), lr=rate)
    x = torch.arange(12).repeat(8, 1) % 4  # a text of one period
    valid = torch.ones_like(x, dtype=torch.bool)
    for step in range(18):
        loss = method(Batch(x, valid), RowStream(0, step, range(8), 8)).total / x.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])


@pytest.mark.parametrize("network", ["mamba", "hyena"])
def test_decoding_token_by_token_equals_the_whole_row(network):
    method = method_of("autoregressive", network).eval()
    with torch.no_grad():
        expected = method.log_next(method.backbone.features(method.inputs(X)).flatten(0, 1))
        denoiser = method.denoiser()
        columns = [*range(12), 5, 6]  # a sampler may go back
        for column in columns:
            at = torch.arange(2), torch.full((2,), column)
            found = denoiser(X, torch.zeros(2), at)
            torch.testing.assert_close(
                found, expected.view(2, 40, -1)[:, column], atol=1e-4, rtol=0
            )


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Mamba, {"width": 0}),
        (Mamba, {"states": 0}),
        (Mamba, {"convolution": 1000}),
        (Hyena, {"positions": 0}),
        (Hyena, {"filter_width": 0}),
    ],
)
def test_impossible_shapes_are_refused(kind, fields):
    with pytest.raises(UnmaskError, match=f"{next(iter(fields))} must be 1 or more, and"):
        kind.Config(**fields)


@pytest.mark.parametrize("name", ["mamba", "hyena"])
def test_a_timed_network_starts_as_the_untimed_one(name):
    """The initial adaLN is the identity at every noise level."""
    kind = BACKBONES[name]
    plain, timed = (
        kind(kind.Config(width=16, depth=2, time_conditioning=wanted), VOCABULARY).double()
        for wanted in (False, True)
    )
    timed.load_state_dict(timed.adapted(plain.state_dict()))
    levels = torch.tensor([0.1, 3.0], dtype=torch.float64)
    torch.testing.assert_close(timed.features(X, levels), plain.features(X))
    changed = {key: tensor + 1 for key, tensor in timed.state_dict().items()}
    assert all(torch.equal(timed.adapted(changed)[key], changed[key]) for key in changed)
