"""Print the lines of Python of every package, without comments and blank lines. `make lint` runs it; it never fails."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def count_lines(folder: Path) -> int:
    """Count the lines of the Python files below a folder that are neither blank nor comments."""
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for text in texts for line in text.splitlines())


def main() -> None:
    """Print all packages."""
    roots = (ROOT / "runtime" / "src" / "inlaid_runtime", ROOT / "core" / "inlaid")
    packages = {
        f"{root.name}.{folder.name}": folder
        for root in roots
        for folder in sorted(root.iterdir())
        if (folder / "__init__.py").exists()
    }
    packages |= {f"plugins/{folder.name}": folder / "src" for folder in sorted((ROOT / "plugins").iterdir()) if folder.is_dir()}
    for name, folder in packages.items():
        print(f"{name:<28} {count_lines(folder):>6}")


if __name__ == "__main__":
    main()
