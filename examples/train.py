"""Train from Python: a small model of a text file, then its bound and a text.

python examples/train.py [FILE] [STEPS]
"""

import sys
from pathlib import Path

import unmask

FILE = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("moon.txt"))
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 200

settings = {
    "data.train": FILE,
    "data.length": 32,
    "data.tokenizer.size": 320,
    "backbone.width": 64,
    "backbone.depth": 2,
    "backbone.heads": 2,
    "training.steps": STEPS,
    "training.batch": 16,
}
model = unmask.train("demo", run="runs/example-train", overrides=settings)
print(model.perplexity(["Zip was a small robot."], draws=16))
print(model.generate(length=32, seed=0)[0])
