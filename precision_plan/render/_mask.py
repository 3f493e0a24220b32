"""The mask of every format; it lives with the plan, because a lock is masked without a format."""

from precision_plan.plan.mask import HIDDEN, Mask

__all__ = ["HIDDEN", "Mask"]
