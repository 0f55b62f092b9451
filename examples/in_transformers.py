"""Transformers: save a model in the layout of the hub, load it with the Auto classes, fill a mask.

python examples/in_transformers.py [MODEL]
"""

import sys

from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

import unmask
import unmask.integrations.transformers  # registers the Auto classes

FOLDER = "example-transformers"
unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories").save_pretrained(FOLDER, licence="mit")
network = AutoModelForMaskedLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
for guess in pipeline("fill-mask", model=network, tokenizer=tokenizer)("Tom lost his [MASK]."):
    print(f"{guess['score']:.3f}  {guess['sequence']}")
ids = tokenizer("One day", return_tensors="pt", add_special_tokens=False)
text = network.generate(**ids, max_length=32, seed=0)
print(tokenizer.decode(text[0], skip_special_tokens=True))
