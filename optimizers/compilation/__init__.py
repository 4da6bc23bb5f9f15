"""torch.compile on networks: progress, cancelling, and uncompiled calls where compiling fails."""
