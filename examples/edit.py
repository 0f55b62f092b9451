"""Edit: rewrite the least likely tokens of a text, a random share of them, or a span.

python examples/edit.py [MODEL]
"""

import sys

import unmask

TEXT = "Lily had a red ball. She ran on the desk with her purple cow."
model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
print("least likely tokens:", model.edit(TEXT, remask_uncertain=3, seed=0)[0])
print("a third of all:     ", model.edit(TEXT, remask=0.3, seed=0)[0])
print("tokens 1 to 4:      ", model.edit(TEXT, remask_span=(1, 5), seed=0)[0])
