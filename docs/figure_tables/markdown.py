"""Cells and tables of Markdown."""


def pct(value, signed=False):
    """A percentage to one decimal, or a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:+.1f}" if signed else f"{value:.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


def table(head, rows):
    """Lines of a Markdown table; every column but the first is aligned right."""
    ruler = "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"
    return ["| " + " | ".join(head) + " |", ruler] + ["| " + " | ".join(row) + " |" for row in rows]
