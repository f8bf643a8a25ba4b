"""Backend `torch`: PyTorch programs (.pt2), TorchScript and safetensors."""
