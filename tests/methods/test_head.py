"""The chunked loss is the dense one, in value and gradient, without its memory."""

import pytest
import torch
from builders import WRITERS, small_method
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unmask.methods.compute import chunked_loss as head
from unmask.methods.compute.chunked_loss import head_loss
from unmask.methods.masked_diffusion import cross_entropy
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Batch

TOKENS, WIDTH, SIZE = 37, 8, 11


def token_loss_of(name: str):
    """A method's own loss of a token, and inputs for it."""
    x = torch.randint(0, SIZE - 1, (TOKENS,), generator=torch.Generator().manual_seed(1))
    method = small_method(name)
    if not hasattr(method, "read") or METHODS[name].capabilities.latent:
        return cross_entropy, [x[:, None], torch.ones(TOKENS)]
    t = torch.linspace(0.05, 0.95, TOKENS, dtype=torch.float64)
    return method.token_loss, [method.read(x), *(part.float() for part in method.loss_inputs(t))]


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(TOKENS, WIDTH), (SIZE, WIDTH), (SIZE,)]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def dense(token_loss, rows):
    h, weight, bias = leaves = tensors()
    logits = torch.nn.functional.linear(h, weight, bias).float()
    ids, *inputs = rows
    losses = token_loss(logits.logsumexp(-1), logits.gather(-1, ids), *inputs)
    (3 * losses.sum()).backward()
    return losses.detach(), [leaf.grad for leaf in leaves]


def chunked(token_loss, rows, chunk):
    leaves = tensors()
    ids, *inputs = rows
    total, losses = head_loss(*leaves, ids, token_loss, *inputs, chunk=chunk)
    torch.testing.assert_close(total.detach(), losses.sum())
    (3 * total).backward()
    return losses, [leaf.grad for leaf in leaves]


def agree(ours, theirs, tolerance: float) -> None:
    for one, other in zip([ours[0], *ours[1]], [theirs[0], *theirs[1]], strict=True):
        assert one.dtype == other.dtype
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("chunk", [1, 5, 36, 37, 64, 0])
@pytest.mark.parametrize("name", WRITERS)
def test_chunks_change_neither_value_nor_gradient(name, chunk):
    token_loss, rows = token_loss_of(name)
    agree(chunked(token_loss, rows, chunk), dense(token_loss, rows), 1e-5)


@pytest.mark.parametrize("name", WRITERS)
def test_autocast_changes_them_only_by_its_rounding(name, bf16):
    token_loss, rows = token_loss_of(name)
    with torch.autocast("cpu", torch.bfloat16):
        rough = chunked(token_loss, rows, 8)
    agree(rough, dense(token_loss, rows), 0.03)


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_masked_is_nothing_lost(name):
    token_loss, rows = token_loss_of(name)
    h, weight, bias = tensors()
    ids, *inputs = (row[:0] for row in rows)
    total, losses = head_loss(h[:0], weight, bias, ids, token_loss, *inputs)
    total.backward()
    assert total == 0
    assert len(losses) == 0
    assert not weight.grad.any()
    assert not bias.grad.any()


def test_without_gradients_the_value_is_the_same():
    token_loss, rows = token_loss_of("mdlm")
    with torch.no_grad():
        ids, *inputs = rows
        total, losses = head_loss(*tensors(), ids, token_loss, *inputs, chunk=5)
    torch.testing.assert_close(losses, dense(token_loss, rows)[0])
    assert not total.requires_grad


@pytest.mark.parametrize("learned", [0, 1, 2])
def test_one_part_can_be_learned_alone(learned):
    token_loss, (ids, *inputs) = token_loss_of("mdlm")
    parts = [part.detach() for part in tensors()]
    parts[learned].requires_grad_()
    (3 * head_loss(*parts, ids, token_loss, *inputs, chunk=5)[0]).backward()
    expected = dense(token_loss, [ids, *inputs])[1][learned]
    assert (parts[learned].grad - expected).norm() <= 1e-5 * expected.norm()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.numel = max([self.numel, *made])
        return out


@pytest.mark.parametrize(
    "name", [name for name in WRITERS if not METHODS[name].capabilities.latent]
)
def test_no_step_ever_holds_all_logits(name, monkeypatch):
    size, rows, length, chunk = 2000, 8, 64, 64
    monkeypatch.setattr(head, "CHUNK_BYTES", 4 * chunk * size)
    method = small_method(name, size)
    x = torch.randint(1, size - 1, (rows, length), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    noise = method.noise(RowStream(0, 0, range(rows), rows), valid)
    with Largest() as largest:
        method.nll(Batch(x, valid), noise, full_bound=True).total.backward()
    assert chunk * size <= largest.numel < rows * length * size / 4


WHOLE = ("d3pm_uniform", "diffusion_bert", "duo", "duo_distilled", "udlm")


@pytest.mark.parametrize("name", [name for name in WHOLE if name in METHODS])
def test_a_loss_of_whole_distributions_is_the_dense_one(name):
    """A head with a hook is called as a module, and autograd computes the gradient."""
    method, x = small_method(name), torch.arange(40).view(4, 10) % (SIZE - 1)
    method.begin_training()
    batch = Batch(x, torch.ones_like(x, dtype=torch.bool))
    found = []
    for hook in (None, method.backbone.head.register_forward_hook):
        if hook:
            hook(lambda module, inputs, output: None)
        method.zero_grad()
        total = method(batch, RowStream(0, 0, range(4), 4)).total
        total.backward()
        found.append([total.detach(), *(p.grad for p in method.parameters() if p.grad is not None)])
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, atol=1e-5, rtol=1e-4)
