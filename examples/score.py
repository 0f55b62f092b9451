"""Score: the cost of sentences in bits. An unlikely sentence costs more.

python examples/score.py [MODEL]
"""

import math
import sys

import unmask

SENTENCES = ["Tom lost his red ball.", "Tom lost his red park.", "Ball red lost Tom his."]
model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
for sentence in SENTENCES:
    bound = model.perplexity([sentence], draws=16)
    bits, error = (nats * bound.tokens / math.log(2) for nats in (bound.nats, bound.error))
    print(
        f"{'≤' if bound.certificate == 'upper' else ' '} {bits:6.1f} ± {error:4.1f} bits  {sentence}"
    )
