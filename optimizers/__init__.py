"""The techniques (torch in, torch out) and, in ``hosts``, how they are attached to a program that runs models."""
