"""A version in a process of its own: a crash, a hang or a full memory there costs its sessions and nobody else."""
