"""Search for the settings of a workflow that are fastest and still draw the picture: numbers only, no host."""
