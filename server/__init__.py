"""What the page asks for: advice, trials, presets, runs. The nodes that it is about are handed in."""
