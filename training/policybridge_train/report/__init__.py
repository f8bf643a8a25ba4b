"""The results of a training run, as a page and as TensorBoard's scalars."""
