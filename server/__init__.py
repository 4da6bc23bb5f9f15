"""The routes of the page: what is known before a run, runs, the cache; and sweeps. Nodes' classes are handed in."""
