"""Caduceus treats a strand of DNA and its reverse complement alike."""

import pytest
import torch
from builders import known

from unmask.backbones.backbone import BACKBONES
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise
from unmask.errors import UnmaskError
from unmask.extensions.dna.backbones.caduceus import Caduceus, strand_sum
from unmask.extensions.dna.backbones.mamba import BiMamba
from unmask.methods.method import METHODS
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

# MASK, PAD, A, C, G, T, N
COMPLEMENTS = (0, 1, 5, 4, 3, 2, 6)
VOCABULARY = Vocabulary(7, 0, pad_id=1, complement_ids=COMPLEMENTS)
LENGTHS = [13, 13, 8, 3]
VALID = torch.arange(13) < torch.tensor(LENGTHS)[:, None]
PARTNER = torch.tensor(COMPLEMENTS)


def network(**fields: object) -> Caduceus:
    """A network in double precision after one step of AdamW, in evaluation mode."""
    torch.manual_seed(0)
    shape = {"width": 6, "depth": 3, "states": 4, "condition_width": 8, **fields}
    built = Caduceus(Caduceus.Config(**known(Caduceus.Config, shape)), VOCABULARY).double()
    optimizer = torch.optim.AdamW(built.parameters(), lr=0.1)
    built.train()
    levels = torch.rand(len(LENGTHS))
    logits = built.logits(built.features(tokens(), levels, valid=VALID))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens().flatten()).backward()
    optimizer.step()
    return built.eval().requires_grad_(False)


def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(2, 7, VALID.shape, generator=generator)
    x[0, 4:7] = VOCABULARY.mask_id
    return x.masked_fill(~VALID, VOCABULARY.pad_id)


def other(x: torch.Tensor) -> torch.Tensor:
    """The reverse complement of rows, with padding at the start."""
    return PARTNER[x].flip(1)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


FORMS = [{}, {"depth": 1}, {"time_conditioning": True}, {"tied_head": False}, {"variant": "ph"}]
LEVELS = torch.tensor([0.1, 0.5, 1.0, 4.0])


@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_the_reverse_complement_has_the_reverse_complement_of_the_logits(fields):
    built = network(**fields)
    h = built.features(tokens(), LEVELS, valid=VALID)
    flipped = built.features(other(tokens()), LEVELS, valid=VALID.flip(1))
    close(flipped[VALID.flip(1)], h.flip(1, 2)[VALID.flip(1)])
    ours, theirs = built.logits(h), built.logits(flipped)
    close(theirs.flip(1)[VALID], ours[VALID][:, PARTNER])
    assert (ours[0, 0] - ours[0, 1]).abs().max() > 1e-3


@pytest.mark.parametrize("fields", [{}, {"time_conditioning": True}], ids=str)
def test_every_layer_is_equivariant(fields):
    built, seen = network(**fields), []
    for part in (built.embedding, *built.blocks, built.norm):
        part.register_forward_hook(lambda module, args, h: seen.append(h))
    found = []
    for x, valid in ((tokens(), VALID), (other(tokens()), VALID.flip(1))):
        built.features(x, LEVELS, valid=valid)
        strands = [h.chunk(2) for h in seen]
        found.append([torch.cat([one, two.flip(1, 2)], -1) for one, two in strands])
        seen.clear()
    assert len(found[0]) == len(built.blocks) + 2
    for ours, theirs in zip(*found, strict=True):
        close(theirs.flip(1, 2)[VALID], ours[VALID])


@pytest.mark.parametrize("variant", ["ps", "ph"])
def test_a_classifier_of_means_is_invariant(variant):
    built, means = network(variant=variant), []
    for x, valid in ((tokens(), VALID), (other(tokens()), VALID.flip(1))):
        h = strand_sum(built.features(x, valid=valid)) * valid[..., None]
        means.append(h.sum(1) / valid.sum(1, keepdim=True))
    close(*means)
    assert means[0].shape[1] * 2 == built.width


@pytest.mark.parametrize("name", ["mdlm", "d3pm", "sedd"])
def test_losses_of_the_reverse_complement_are_the_same(name):
    kind = METHODS[name]
    schedule, sampler = SCHEDULES.build("loglinear"), TIME_SAMPLERS.build("stratified")
    backbone = network(time_conditioning=True)
    method = kind(kind.Config(), backbone, VOCABULARY, schedule, sampler).eval()
    x, masked = tokens(), VALID & (torch.arange(13) % 3 == 0)
    losses = []
    for text, there, hidden in ((x, VALID, masked), (other(x), VALID.flip(1), masked.flip(1))):
        ones = torch.ones(len(x), dtype=torch.float64)
        noise = Noise(LEVELS.double() / 5, hidden, ones, 0.0, torch.zeros_like(hidden))
        losses.append(method.nll(Batch(text, there), noise).per_token())
    torch.testing.assert_close(losses[1].flip(1), losses[0])
    assert losses[0].any()


def test_post_hoc_training_is_plain_bimamba_and_evaluation_the_mean():
    built = network(variant="ph")
    plain = BiMamba(BiMamba.Config(width=6, depth=3, states=4), VOCABULARY).double()
    plain.load_state_dict({**built.state_dict(), "head.bias": torch.zeros(7)})
    x = tokens()
    one, two = (plain.logits(plain.features(z)) for z in (x, other(x)))
    mean = (one + two.flip(1)[..., PARTNER]) / 2
    close(built.logits(built.features(x)), mean)
    close(strand_sum(built.features(x)), (plain.features(x) + plain.features(other(x)).flip(1)) / 2)
    built.train()
    close(built.logits(built.features(x)), one)
    close(strand_sum(built.features(x)), plain.features(x))


def test_a_vocabulary_without_complements_is_refused():
    with pytest.raises(UnmaskError, match=r"complements: set data\.tokenizer\.kind dna"):
        Caduceus(Caduceus.Config(), Vocabulary(5, 4))
    with pytest.raises(UnmaskError, match="pss"):
        Caduceus.Config(variant="pss")


def test_an_attention_rule_is_refused():
    with pytest.raises(UnmaskError, match="has no attention"):
        network().features(tokens(), rule=lambda q, k: k <= q)


def test_sizes_are_those_of_the_paper():
    vocabulary = Vocabulary(12, 3, complement_ids=tuple(range(12)))
    sizes = {}
    for name in ("mamba", "caduceus", "hyena"):
        kind = BACKBONES[name]
        sizes[name] = sum(p.numel() for p in kind(kind.Config(), vocabulary).parameters())
    assert sizes == {"mamba": 468_108, "caduceus": 470_230, "hyena": 435_596}
