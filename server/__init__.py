"""The routes of the page: advice, trials, presets, runs. The nodes' classes are handed in."""
