"""GLUE (Wang et al., 2018): fine-tuning on its tasks, as a suite."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, {"suite": {"glue": ".glue_suite"}})
