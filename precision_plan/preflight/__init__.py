"""Looks at the world: so far at a checkpoint's ``config.json`` and safetensors headers."""
