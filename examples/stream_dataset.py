"""Stream a dataset: a source of your own that reads a Hugging Face dataset document by document.

    python examples/stream_dataset.py [STEPS]

Replace `Dataset.from_dict(…)` by `load_dataset(NAME, split="train", streaming=True)` for a large one.
"""

import sys
from pathlib import Path

from datasets import Dataset

import unmask
from unmask.data.sources.corpus import SOURCES, Corpus, Source

MOON = Path(__file__).with_name("moon.txt")
DATASET = Dataset.from_dict({"text": MOON.read_text().split("\n\n")}).to_iterable_dataset()


@SOURCES.register("example-stream:")
class ExampleStream(Source):
    """Documents of DATASET, again and again."""

    @classmethod
    def open(cls, spec, fields):
        def documents(start):
            yield from (record["text"] for record in DATASET.skip(start))

        return Corpus.stream("example-stream:", documents)


settings = {"data.train": "example-stream:", "data.valid": str(MOON), "data.length": 32}
settings |= {"data.tokenizer.kind": "bytes", "training.batch": 4, "backbone.width": 64}
settings |= {"training.steps": int(sys.argv[1]) if len(sys.argv) > 1 else 100}
model = unmask.train("demo", run="runs/example-stream", overrides=settings)
print(model.generate(length=32, seed=0)[0])
