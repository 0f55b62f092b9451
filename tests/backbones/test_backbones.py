"""Properties of every network: separate features and head, ignored padding, attention rules."""

import pytest
import torch
from builders import known

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.causal import Causal
from unmask.backbones.compile import recompute_blocks
from unmask.backbones.dit import DiT
from unmask.backbones.layers.attention_rules import causal_rule
from unmask.backbones.layers.dropout import draw_keys
from unmask.backbones.layers.state import KVState
from unmask.backbones.layers.transformer_block import SIZES
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

NAMES = list(BACKBONES)
ROTARY = ["causal", "dit", "llama"]  # the others have learned positions
CAUSAL = [name for name in NAMES if BACKBONES[name].causal]
SIZE, ROWS, LENGTH = 11, 3, 8
COMPLEMENTS = (*range(SIZE - 1)[::-1], SIZE - 1)
VOCABULARY = Vocabulary(SIZE, SIZE - 1, complement_ids=COMPLEMENTS)
NOT_ATTENTIVE = [name for name in NAMES if not hasattr(BACKBONES[name].Config, "heads")]
SIZED = [name for name in NAMES if hasattr(BACKBONES[name].Config, "size")]
TIMED = [name for name in NAMES if hasattr(BACKBONES[name].Config, "time_conditioning")]


def network(name: str, **fields: object):
    """A small network with no weight at zero."""
    kind = BACKBONES[name]
    shape = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0, "condition_width": 8, **fields}
    built = kind(kind.Config(**known(kind.Config, shape)), VOCABULARY)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return built.eval().requires_grad_(False)


def tokens(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, SIZE, (ROWS, LENGTH), generator=generator)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_logits_at_some_positions_equal_those_at_all(name):
    built = network(name)
    h = built.features(tokens())
    at = torch.tensor([0, 2, 2]), torch.tensor([1, 0, 7])
    close(built.logits(h[at]), built.logits(h)[at])
    assert built.logits(h).shape == (ROWS, LENGTH, SIZE)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_effect(name):
    built, x = network(name), tokens()
    valid = torch.arange(LENGTH) < torch.tensor([[8], [5], [1]])
    h = built.features(x, valid=valid)
    close(built.features(torch.where(valid, x, 9 - x.clamp(max=9)), valid=valid)[valid], h[valid])
    for row, length in enumerate([8, 5, 1]):
        close(h[row, :length], built.features(x[row : row + 1, :length])[0])


@pytest.mark.parametrize("name", NOT_ATTENTIVE)
def test_padding_before_a_text_has_no_effect(name):
    built, x = network(name), tokens()
    valid = torch.arange(LENGTH) >= torch.tensor([[0], [3], [6]])
    h = built.features(x, valid=valid)
    for row, start in enumerate([0, 3, 6]):
        close(h[row, start:], built.features(x[row : row + 1, start:])[0])


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_independent(name):
    built = network(name)
    close(built.features(tokens())[1:2], built.features(tokens()[1:2]))


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_networks_depend_on_distances_only(name):
    built = network(name)
    shifted = built.features(tokens(), positions=torch.arange(LENGTH) + 5)
    torch.testing.assert_close(shifted, built.features(tokens()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_order_matters(name):
    built = network(name)
    assert (built.features(tokens()) - built.features(tokens().flip(1)).flip(1)).abs().max() > 1e-2


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_past_does_not_depend_on_the_future(name):
    built, x = network(name), tokens()
    h = built.features(x)
    for cut in range(1, LENGTH):
        changed = x.clone()
        changed[:, cut:] = (changed[:, cut:] + 1) % SIZE
        close(built.features(changed)[:, :cut], h[:, :cut])
        assert not torch.allclose(built.features(changed)[:, cut:], h[:, cut:])


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(CAUSAL)))
def test_bidirectional_networks_read_both_sides(name):
    built, x = network(name), tokens()
    for place in (0, LENGTH - 1):
        changed = x.clone()
        changed[:, place] = (changed[:, place] + 1) % SIZE
        assert ((built.features(changed) - built.features(x)).abs().amax((0, 2)) > 1e-6).all()


def test_a_causal_rule_makes_a_bidirectional_network_causal():
    built, x = network("dit"), tokens()
    h = built.features(x, rule=causal_rule)
    for cut in range(1, LENGTH):
        close(h[:, :cut], built.features(x[:, :cut], rule=causal_rule))
    close(built.features(x, rule=lambda q, k: (q >= 0) & (k >= 0)), built.features(x))


def test_an_attention_rule_and_padding_work_together():
    built, x = network("dit"), tokens()
    valid = torch.arange(LENGTH) < torch.tensor([[8], [5], [3]])
    h = built.features(x, valid=valid, rule=causal_rule)
    for row, length in enumerate([8, 5, 3]):
        close(h[row, :length], built.features(x[row : row + 1, :length], rule=causal_rule)[0])


def test_an_explicit_causal_rule_equals_the_fused_kernel():
    built = network("causal")
    close(built.features(tokens(), rule=causal_rule), built.features(tokens()))


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("parts", [[8], [1] * 8, [3, 5], [2, 1, 4, 1]])
def test_cached_features_equal_uncached_ones(parts, name):
    built, x = network(name), tokens()
    cache = built.new_state(ROWS, LENGTH)
    pieces = [built.features(piece, state=cache) for piece in x.split(parts, 1)]
    assert cache.length == LENGTH
    close(torch.cat(pieces, 1), built.features(x))


def test_a_cropped_cache_drops_later_tokens():
    built, x, other = network("causal"), tokens(), tokens(1)
    cache = KVState(LENGTH)
    built.features(x, state=cache)
    cache.crop(3)
    assert cache.length == 3
    mixed = torch.cat([x[:, :3], other[:, 3:]], 1)
    close(built.features(other[:, 3:], state=cache), built.features(mixed)[:, 3:])
    cache.crop(100)
    assert cache.length == LENGTH


@pytest.mark.parametrize("name", TIMED)
def test_noise_level_is_read_only_by_a_time_conditioned_network(name):
    x = tokens()
    low, high = torch.full((ROWS,), 0.1), torch.full((ROWS,), 5.0)
    blind, aware = network(name), network(name, time_conditioning=True)
    assert torch.equal(blind.features(x, low), blind.features(x, high))
    assert not torch.allclose(aware.features(x, low), aware.features(x, high))
    close(aware.features(x, torch.zeros(ROWS)), aware.features(x))


@pytest.mark.parametrize("name", TIMED)
def test_each_row_has_its_own_noise_level(name):
    aware, x = network(name, time_conditioning=True), tokens()
    levels = torch.tensor([0.1, 1.0, 5.0])
    for row in range(ROWS):
        close(aware.features(x, levels)[row], aware.features(x[[row]], levels[[row]])[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_new_network_predicts_uniformly(name):
    kind = BACKBONES[name]
    shape = known(kind.Config, {"width": 16, "depth": 1, "heads": 2, "tied_head": False})
    built = kind(kind.Config(**shape), VOCABULARY)
    assert not built.logits(built.features(tokens())).any()


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("size", list(SIZES))
def test_parameter_counts_are_those_of_the_authors(name, size):
    config = BACKBONES[name].Config(size=size)
    assert (config.width, config.depth, config.heads) == SIZES[size]
    with pytest.raises(UnmaskError, match="drop depth or size"):
        BACKBONES[name].Config(size=size, depth=3)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("fields", [{"positions": 0}, {"inner": -1}, {"epsilon": 0.0}])
def test_impossible_shapes_of_the_classics_are_refused(name, fields):
    with pytest.raises(UnmaskError, match=next(iter(fields))):
        BACKBONES[name].Config(**fields)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_classics_drop_out_by_row_and_recompute_the_same(name):
    built = network(name, dropout=0.5, positions=LENGTH).train().requires_grad_()
    built.dropout_keys = draw_keys(ROWS, torch.device("cpu"))
    outcomes = []
    for wanted in (False, True):
        recompute_blocks(built, wanted)
        built.zero_grad()
        h = built.features(tokens(), at=torch.tensor([3, 20]))
        h.sin().sum().backward()
        outcomes.append((h.detach(), built.blocks[0].qkv.weight.grad.clone()))
    for plain, again in zip(*outcomes, strict=True):
        assert torch.equal(plain, again)
    built.eval()
    assert not torch.allclose(built.features(tokens(), at=torch.tensor([3, 20])), outcomes[0][0])
    with pytest.raises(
        UnmaskError, match=f"has {LENGTH + 1} tokens, more than the network's {LENGTH} positions"
    ):
        built.features(torch.zeros(1, LENGTH + 1, dtype=torch.long))


@pytest.mark.parametrize("kind", [DiT, Causal])
@pytest.mark.parametrize(
    "fields", [{"size": "smal"}, {"width": -1}, {"width": 20, "heads": 4}, {"dropout": 1.0}]
)
def test_impossible_shapes_are_refused(kind, fields):
    with pytest.raises(UnmaskError):
        kind.Config(**fields)


def test_blocks_whose_outputs_start_at_zero_are_the_identity_and_learn():
    torch.manual_seed(0)
    config = DiT.Config("", 16, 2, 2, dropout=0.0, gate=1.0, zero_out=True)
    network = DiT(config, Vocabulary.over(8))
    torch.nn.init.normal_(network.head.weight)
    x = torch.arange(8)[None]
    h = network.features(x)
    torch.testing.assert_close(h, network.norm(network.embedding(x)))
    network.logits(h)[..., 0].sum().backward()
    assert all(block.attention.out.weight.grad.any() for block in network.blocks)
    with pytest.raises(UnmaskError, match=r"zero_out with closed gates .*: set gate 1"):
        DiT.Config(zero_out=True)
