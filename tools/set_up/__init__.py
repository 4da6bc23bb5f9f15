"""The parts of ``tools/setup_env.py``; standard library only."""
