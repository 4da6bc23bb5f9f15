"""What the page and ``tune`` ask: what makes a workflow faster, runs, sweeps, the cache. Nodes are handed in."""
