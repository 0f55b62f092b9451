"""The playground: a page in the browser that shows how texts form, fills gaps and edits."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"play": ".play"})
