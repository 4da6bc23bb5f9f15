"""The example workflows as code: ``tools/update_examples.py`` writes them to ``example_workflows/``."""
