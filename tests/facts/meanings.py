"""What the phrase that tells a flag's meaning looks like."""

PRODUCTS = ("FlashAttention", "Megatron", "ModelOpt", "PyTorch", "Transformer Engine")
ACRONYMS = ("GPUs ", "HF ", "MLA: ", "YAML ")


def reads_as_meaning(text: str) -> bool:
    """True for a phrase, not a sentence: at most 120 characters, no full stop, no capital first.

    A name may come first, with the capital that it always has.
    """
    small = text[:1].islower() or text.startswith(PRODUCTS + ACRONYMS)
    return small and len(text) <= 120 and not text.endswith(".")
