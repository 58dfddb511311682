"""Edge: the shell over the state: its tree, its commands, and where states come from."""
