"""A network with scans is compiled as one graph."""

import subprocess
import sys

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

# a scan is one operator of the graph, and a graph break is an error
SCANNED = """
import sys
import torch
from unmask.backbones import BACKBONES
from unmask.vocabulary import Vocabulary

device, backend = sys.argv[1:]
vocabulary = Vocabulary(12, 3, complement_ids=(0, 1, 2, 3, 4, 5, 6, 10, 9, 8, 7, 11))
kind = BACKBONES["caduceus"]
torch.manual_seed(0)
with torch.device(device):
    net = kind(kind.Config(width=16, depth=1), vocabulary)
    tokens = torch.randint(7, 11, (3, 40))

def gradients():
    net.zero_grad()
    net.logits(net.features(tokens)).logsumexp(-1).sum().backward()
    return {name: p.grad.double() for name, p in net.named_parameters()}

expected = gradients()
net.trunk = torch.compile(net.trunk, backend=backend, fullgraph=True)
compiled = gradients()
far = {name: float((compiled[name] - g).norm() / g.norm()) for name, g in expected.items()}
assert max(far.values()) < 1e-4, far
"""


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "aot_eager"), pytest.param("cuda", "inductor", marks=needs_gpu)]
)
def test_a_compiled_network_with_scans_is_one_graph(device, backend):
    command = [sys.executable, "-c", SCANNED, device, backend]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]
