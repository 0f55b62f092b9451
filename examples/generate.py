"""Generate: texts from a prompt, by a shipped model.

python examples/generate.py [MODEL]
"""

import sys

import unmask

model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
for result in model.generate("Once upon a time", length=48, n=2, seed=0):
    print(f"{result}\n  {len(result.ids)} tokens, {result.calls} network calls\n")
