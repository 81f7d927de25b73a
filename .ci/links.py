#!/usr/bin/env python3
"""Every relative link of the documents leads to a file and to a heading in it, and every path that the contributors' documents name to a
file."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = "src|replay|lab|serve|cli|probe|bindings|bench_data|tests|docs|examples|page|fuzz|benches"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")


def headings(path):
    """The anchors of a document: its headings in lower case, with dashes for blanks and without punctuation."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in lines}


def leads(document, link, anchor):
    path = document.parent / link if link else document
    return path.exists() and (not anchor or path.suffix != ".md" or anchor in headings(path))


documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bindings/*/README.md")]
missing = []
for document in sorted(documents):
    text = document.read_text()
    missing += [(document, link + (anchor and f"#{anchor}")) for link, anchor in LINK.findall(text) if not leads(document, link, anchor)]
    if document.name in ("design.md", "CONTRIBUTING.md"):
        missing += [(document, path) for path in PATH.findall(text) if not (ROOT / path).exists()]
for document, path in missing:
    print(f"{document.relative_to(ROOT)}: {path} does not exist")
print(f"{len(documents)} documents, {len(missing)} paths that lead nowhere")
sys.exit(bool(missing))
