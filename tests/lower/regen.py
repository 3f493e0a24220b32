"""Write the golden files of every recipe: ``python -m tests.lower.regen``."""

from __future__ import annotations

from tests.lower import golden


def main() -> None:
    """Write what changed and remove what no recipe has any more."""
    golden.GOLDEN.mkdir(exist_ok=True)
    kept = set()
    for recipe in golden.RECIPES:
        plan = golden.compiled(recipe)
        for suffix, text in ((".json", golden.json_text(plan)), (".sh", golden.shell_text(plan))):
            path = golden.GOLDEN / f"{recipe}{suffix}"
            path.write_text(text, encoding="utf-8")
            kept.add(path)
    for path in set(golden.GOLDEN.iterdir()) - kept:
        path.unlink()


if __name__ == "__main__":
    main()
