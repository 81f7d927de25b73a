#!/usr/bin/env python3
"""Every relative link of the documents leads to a file, and so does every path that the contributors' documents name."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = "src|replay|serve|lab|cli|probe|bindings|bench_data|tests|docs|examples|page|fuzz|benches"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")

documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bindings/*/README.md")]
missing = []
for document in sorted(documents):
    text = document.read_text()
    missing += [(document, link) for link in LINK.findall(text) if not (document.parent / link).exists()]
    if document.name in ("design.md", "CONTRIBUTING.md"):
        missing += [(document, path) for path in PATH.findall(text) if not (ROOT / path).exists()]
for document, path in missing:
    print(f"{document.relative_to(ROOT)}: {path} does not exist")
print(f"{len(documents)} documents, {len(missing)} paths that lead nowhere")
sys.exit(bool(missing))
