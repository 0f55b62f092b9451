"""A user's script, which mypy reads: an option that does not exist must be an error.

mypy also refuses a needless `type: ignore`, so each line below fails if its mistake is accepted.
"""

from pathlib import Path

import unmask

model = unmask.load("stories", device="cpu")
texts: list[unmask.Result] = model.generate("Tom", n=2, temperature=0.8, regex=".*", length="auto")
model.generate("Tom", temprature=0.8)  # type: ignore[call-arg]
model.generate("Tom", top_p="high")  # type: ignore[arg-type]
model.fill("Tom [MASK]", strategy="greedy")  # type: ignore[arg-type]
model.edit("Tom", remask="all")  # type: ignore[arg-type]
model.stream("Tom", stepps=3)  # type: ignore[call-arg]
bound: unmask.Bound = model.perplexity(Path("notes.txt"), draws=2)
model.perplexity("Tom was happy.", draw=2)  # type: ignore[call-arg]
trained: unmask.Model = unmask.train("demo", run="runs/x", overrides={"training.steps": 100})
unmask.train("demo", steps=100)  # type: ignore[call-arg]
model.save("folder", precison="bf16")  # type: ignore[call-arg]
unmask.load("stories", devise="cpu")  # type: ignore[call-arg]
rows = unmask.evaluate(model, "likelihood", draws=2)
