"""What other settings of a sampling run would be worth, from one ordinary run of it. torch only, no host."""
