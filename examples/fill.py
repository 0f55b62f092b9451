"""Fill: gaps in a sentence, with both sides in view. [MASK] is one token, [MASK:3] three.

python examples/fill.py [MODEL]
"""

import sys

import unmask

model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
for result in model.fill("Tom was [MASK:3] because his [MASK] was lost.", n=4, seed=0):
    print(result)
