"""What every folder above uses: counts, errors, canonical order, files, devices. Knows no technique and no host."""
