"""Fine-tune: a trained model on a new text, with its bound on one sentence before and after.

python examples/fine_tune.py [MODEL] [STEPS]
"""

import sys
from pathlib import Path

import unmask

NAME = sys.argv[1] if len(sys.argv) > 1 else "stories"
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 30
SENTENCE = ["Zip the robot rolled over the gray dust of the moon."]

settings = {
    "init_from": NAME,
    "data.train": str(Path(__file__).with_name("moon.txt")),
    "data.length": 64,
    "training.steps": STEPS,
}
print("before:", unmask.load(NAME).perplexity(SENTENCE, draws=32))
model = unmask.train("finetune", run="runs/example-fine-tune", overrides=settings)
print("after: ", model.perplexity(SENTENCE, draws=32))
print(model.generate("Zip", length=40, seed=0)[0])
