"""Make a workflow faster from the command line: what the page does, as another client of the same routes."""
