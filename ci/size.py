"""Print the size of npu_sim in tokens by package, and what a change adds or removes.

``python ci/size.py`` compares the working tree with the main branch, or on main itself with the
commit before; ``--base REV`` with another revision. Tokens are those of Python's `tokenize`;
comments, docstrings and layout do not count, so that packing values into fewer lines or statements
gains nothing.

The sum may rise only when ``CHANGELOG.md`` changes as well: a sentence there says what users get
for it. The exit code is 1 otherwise.
"""

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "npu_sim"
CHANGES = "CHANGELOG.md"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
"""Tokens that do not count."""


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def docstrings(source: str) -> set[tuple[int, int]]:
    """Return where the docstrings of a file begin, those of attributes and constants included."""
    return {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def tokens(source: str) -> int:
    """Return the number of tokens of a file, without comments, docstrings and layout."""
    texts = docstrings(source)
    return sum(
        token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start in texts)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def package_of(path: str) -> str:
    """Return the package or module of npu_sim that a file belongs to."""
    return PurePosixPath(path).relative_to(PACKAGE).parts[0]


def sizes_now() -> tuple[Counter[str], int]:
    """Return the tokens of the working tree by package, and its number of files."""
    paths = sorted((ROOT / PACKAGE).rglob("*.py"))
    sizes: Counter[str] = Counter()
    for path in paths:
        name = package_of(path.relative_to(ROOT).as_posix())
        sizes[name] += tokens(path.read_text(encoding="utf-8"))
    return sizes, len(paths)


def sizes_at(revision: str) -> tuple[Counter[str], int]:
    """Return the tokens of a revision by package, and its number of files."""
    listed = git("ls-tree", "-r", "--name-only", revision, f"{PACKAGE}/").splitlines()
    paths = [path for path in listed if path.endswith(".py")]
    sizes: Counter[str] = Counter()
    for path in paths:
        sizes[package_of(path)] += tokens(git("show", f"{revision}:{path}"))
    return sizes, len(paths)


def base_revision() -> str:
    """Return the point where the working tree left the main branch; on main, the commit before.

    Empty in a clone without history.
    """
    here = git("rev-parse", "HEAD").strip()
    for command in (
        ("merge-base", "HEAD", "origin/main"),
        ("merge-base", "HEAD", "main"),
        ("rev-parse", "--verify", "HEAD^"),
    ):
        with suppress(subprocess.CalledProcessError):
            base = git(*command).strip()
            if base != here:
                return base
    return ""


def main() -> int:
    """Print the sizes; return 1 if the sum rises without a change of CHANGELOG.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="revision to compare with; the main branch by default")
    base = parser.parse_args().base or base_revision()
    now, files = sizes_now()
    before, files_before = sizes_at(base) if base else (now, files)
    added = now.total() - before.total()
    print(f"{now.total()} tokens in {files} files")
    if base:
        print(f"{added:+d} tokens, {files - files_before:+d} files since {base[:12]}")
    for name, size in now.most_common():
        change = size - before[name]
        print(f"{size:7d}  {name}" + (f"  {change:+d}" if change else ""))
    for name in sorted(before.keys() - now.keys()):
        print(f"      0  {name}  {-before[name]:+d}")
    if added > 0 and not git("diff", "--name-only", base, "--", CHANGES):
        print(f"The size rises: say in {CHANGES} what users get for it.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
