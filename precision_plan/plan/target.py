"""The declared target, read once: GPU, platform, package versions, framework."""

from __future__ import annotations

from dataclasses import dataclass

from precision_plan.facts.gpus import Gpu, gpus, parse_capability
from precision_plan.plan.precision_plan import PrecisionPlan

PACKAGES = ("megatron_core", "transformer_engine", "torch", "cuda", "vllm", "ray", "flashinfer")


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of the machine and the software. ``None`` is unknown, never a guess.

    ``compute_capability`` is ``(major, minor)``; it is ``None`` on ROCm, where ``gfx`` is set.
    """

    framework: str | None
    gpu: str | None
    compute_capability: tuple[int, int] | None
    platform: str | None
    gfx: str | None
    fp8_encoding: str | None
    world_size: int | None
    versions: tuple[tuple[str, str], ...]

    def package(self, name: str) -> str | None:
        """Declared version of one of :data:`PACKAGES`, or ``None``."""
        for package, text in self.versions:
            if package == name:
                return text
        return None

    @classmethod
    def of(cls, plan: PrecisionPlan) -> Target:
        """Read the target that ``plan`` declares; an unknown GPU name leaves the GPU unknown."""
        # not known and not declared are the same here
        hardware, software = plan.hardware.__dict__.get, plan.software.__dict__.get
        name = hardware("gpu")
        gpu: Gpu | None = gpus().get(name) if name else None
        capability = gpu.compute_capability if gpu else None
        if (declared := hardware("compute_capability")) is not None:
            capability = parse_capability(declared)
        platform = hardware("platform") or (gpu.platform if gpu else None)
        if platform is None and capability is not None:
            platform = "cuda"
        world_size = None
        nodes, gpus_per_node = hardware("nodes"), hardware("gpus_per_node")
        if nodes is not None and gpus_per_node is not None:
            world_size = nodes * gpus_per_node
        versions = tuple(
            (package, text) for package in PACKAGES if (text := software(package)) is not None
        )
        return cls(
            framework=software("framework"),
            gpu=name,
            compute_capability=capability if platform == "cuda" else None,
            platform=platform,
            gfx=gpu.gfx if gpu else None,
            fp8_encoding=gpu.fp8_encoding if gpu else None,
            world_size=world_size,
            versions=versions,
        )
