"""What a training run came to, as a page and as TensorBoard's scalars."""
