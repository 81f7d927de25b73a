"""Cells and tables of Markdown."""


def pct(value, signed=False):
    """A percentage to one decimal, or a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:+.1f}" if signed else f"{value:.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


def table(head, rows, numbers=True):
    """Lines of a Markdown table; columns of numbers, which are all but the first, are aligned right."""
    ruler = "|" + "|".join(["---"] + ["---:" if numbers else "---"] * (len(head) - 1)) + "|"
    return ["| " + " | ".join(head) + " |", ruler] + ["| " + " | ".join(row) + " |" for row in rows]
