"""Better programs from compilers' decisions: corpora, scores, and an autotuner with credit per function."""
