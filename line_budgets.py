"""Print the lines of Python of every package next to the budgets in pyproject.toml, and fail if one is exceeded.

Run by `make lint`. Raising a budget needs a decision in docs/adr/, so that growth is noticed.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent


def lines_of(folder: Path) -> int:
    """Count the lines of the Python files below a folder."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def main() -> int:
    """Print all packages. Returns the exit status: 1 if a package exceeds its budget or has none."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["inlaid"]["lines"]
    packages = {folder.name: folder for folder in sorted((ROOT / "core" / "inlaid").iterdir()) if (folder / "__init__.py").exists()}
    packages |= {f"plugins/{folder.name}": folder / "src" for folder in sorted((ROOT / "plugins").iterdir()) if folder.is_dir()}
    # A budget may name a package inside a plugin, which then does not count towards the plugin's budget.
    nested = {
        name: next(iter(packages[str(Path(name).parent)].glob(f"*/{Path(name).name}"))) for name in budgets if name.count("/") == 2
    }
    failed = 0
    for name, folder in (packages | nested).items():
        inside = sum(lines_of(other) for key, other in nested.items() if str(Path(key).parent) == name)
        lines, budget = lines_of(folder) - inside, budgets.get(name, 0)
        failed |= lines > budget
        print(f"{name:<20} {lines:>6} of {budget:>6}{'  too many' if lines > budget else ''}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
