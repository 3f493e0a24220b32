"""The nouns: number formats and axes, the plan, diagnostics, lowerings. No I/O."""

from precision_plan.plan.checkpoint_files import CheckpointFiles, TensorHeader, Unreadable
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix, Severity, Stage
from precision_plan.plan.effective import Effective, Override, effective
from precision_plan.plan.lowering import Item, Lowering, Reason, Role
from precision_plan.plan.origin import UNKNOWN, Origin
from precision_plan.plan.precision_plan import SCHEMA_VERSION, SECTIONS, PrecisionPlan
from precision_plan.plan.target import Target

__all__ = [
    "SCHEMA_VERSION",
    "SECTIONS",
    "UNKNOWN",
    "Because",
    "CheckpointFiles",
    "Diagnostic",
    "Effective",
    "Fix",
    "Item",
    "Lowering",
    "Origin",
    "Override",
    "PrecisionPlan",
    "Reason",
    "Role",
    "Severity",
    "Stage",
    "Target",
    "TensorHeader",
    "Unreadable",
    "effective",
]
