"""Which of our nodes, with which settings: attached as if they were wired, and the presets that come with the pack."""
