"""Where an entry of a defaults list leads: group, file and package, by the rules of Hydra."""

from __future__ import annotations

from dataclasses import dataclass, replace

from precision_plan.compose.entries import Entry


@dataclass(slots=True)
class Placed:
    """An entry at its place: ``base`` and ``parent_package`` are the group path and the package of
    the list that holds it, ``header`` the package that its file names."""

    entry: Entry
    base: str
    parent_package: str
    header: str | None = None

    def __post_init__(self) -> None:
        package = self.entry.package
        if package is not None and "_group_" in package:
            resolved = package.replace("_group_", self.group.replace("/", "."))
            self.entry = replace(self.entry, package=f"_global_.{resolved}")

    @property
    def group(self) -> str:
        """Absolute path of the group."""
        name = self.entry.name
        absolute, name = name.startswith("/"), name.removeprefix("/")
        if self.entry.kind == "config":
            name = name.rpartition("/")[0]
        if absolute or not self.base:
            return name
        return f"{self.base}/{name}" if name else self.base

    @property
    def choice(self) -> str | None:
        """Name of the chosen file; ``None`` if nothing is chosen, or several are."""
        if self.entry.kind == "config":
            return self.entry.name.rpartition("/")[2]
        return self.entry.value if isinstance(self.entry.value, str) else None

    @property
    def config_path(self) -> str:
        """``group/choice``, as the search path is asked for it."""
        group = self.group
        return f"{group}/{self.choice}" if group else str(self.choice)

    @property
    def override_key(self) -> str:
        """What an override must name to change this entry: ``group`` or ``group@package``."""
        package = self.final_package(use_header=False)
        if package == self.group.replace("/", "."):
            return self.group
        return f"{self.group}@{package or '_global_'}"

    def final_package(self, use_header: bool = True) -> str:
        """The dotted key that the file fills: entry, else header, else group; below the parent's
        package unless ``_global_`` makes it absolute.
        """
        package = self.entry.package
        if package is None and use_header:
            package = self.header
        if package is None:
            relative = self.entry.name.removeprefix("/")
            if self.entry.kind == "config":
                relative = relative.rpartition("/")[0]
            package = relative.replace("/", ".")
        whole = ".".join(part for part in (self.parent_package, package) if part)
        head, found, tail = whole.rpartition("_global_")
        return tail.removeprefix(".") if found else head + tail
