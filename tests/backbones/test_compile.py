"""A compiled network has the gradients of the plain one, in the precision of training and in full."""

import subprocess
import sys

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# runs in its own process, because the compiler cannot trace the shape checks of the tests
COMPARED = """
import functools
import sys
import torch
from torch._inductor.exc import InvalidCxxCompiler
from unmask.backbones import DiT, compile_backbone, compile_blocks
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

device, backend = sys.argv[1:]
torch.manual_seed(0)
with torch.device(device):
    net = DiT(DiT.Config("", 64, 1, 2, dropout=0.1), Vocabulary(50, 49))
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    tokens = torch.randint(0, 50, (4, 32))
    at = torch.arange(0, 128, 3)
    net.dropout_keys = torch.randint(-(2**31), 2**31, (4, 2), dtype=torch.int32)

def gradients(precision):
    net.zero_grad()
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        h = net.features(tokens, at=at)
        (net.logits(h).float().logsumexp(-1).sum() + h.float().pow(3).sum()).backward()
    return {name: p.grad.double() for name, p in net.named_parameters()}

plain = {precision: gradients(precision) for precision in ("fp32", "bf16")}
net.trunk = torch.compile(net.trunk, backend=backend)
for precision, expected in plain.items():
    compiled = gradients(precision)
    far = {name: float((compiled[name] - g).norm() / g.norm()) for name, g in expected.items()}
    least = 0.03 if precision == "bf16" else 1e-4
    assert max(far.values()) < least, (precision, far)

def no_compiler(graph, inputs):
    raise InvalidCxxCompiler()

torch.compile = functools.partial(torch.compile, backend=no_compiler)
for compile in (compile_backbone, compile_blocks):
    compile(net)
    try:
        net.features(tokens)
    except UnmaskError as error:
        assert "cannot compile the network (No working C++ compiler" in str(error), error
    else:
        raise AssertionError(compile)
    vars(net).pop("trunk", None)
"""


@pytest.mark.parametrize(
    ("device", "backend"),
    [
        ("cpu", "eager"),  # the tracer alone
        pytest.param("cuda", "inductor", marks=needs_gpu),
    ],
)
def test_a_compiled_network_has_the_same_gradients(device, backend):
    command = [sys.executable, "-c", COMPARED, device, backend]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]
