"""Constrain: a pattern, a required phrase and a banned phrase. Every text satisfies them.

python examples/constrain.py [MODEL]
"""

import re
import sys

import unmask

PATTERN = r"On [A-Z][a-z]+day, .*"
model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
dated = model.generate(regex=PATTERN, length=32, seed=0)[0]
assert re.fullmatch(PATTERN, dated.text)
print(dated)
story = model.generate("One day", include=["umbrella"], ban=["Lily"], length=48, seed=0)[0]
assert "umbrella" in story.text and "Lily" not in story.text
print(story)
