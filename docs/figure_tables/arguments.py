"""Tables of arguments, a section each, from the schema that the command reads them by."""


def cell(text):
    return text.replace("|", "\\|")


def names(argument):
    return ", ".join(f"`{name}`" for name in [argument["name"], *argument["aliases"]])


def value(argument):
    """What a value must be; numbers without a limit of their own have that of 32 bits."""
    schema = argument["schema"]
    if schema.get("type") == "integer" and schema.get("maximum", 0) >= 2**32 - 1:
        return f"a whole number of at least {schema['minimum']}"
    return {"another value": "", "a text that is not empty": "text"}.get(argument["must_be"], argument["must_be"])


def lines(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


def of_section(section):
    """The modelled arguments of a section."""

    def listed(reports):
        arguments = [one for one in reports.read("arguments", section)["arguments"] if one["support"] == "modelled"]
        rows = [[names(one), cell(value(one)), cell(one["default"]), cell(one["help"])] for one in arguments]
        return lines(["argument", "value", "default", "meaning"], rows)

    return listed


def not_modelled(reports):
    arguments = [one for one in reports.read("arguments")["arguments"] if one["support"] == "not_modelled"]
    return lines(["argument", "why it is refused"], [[names(one), cell(one["help"])] for one in arguments])


def without_influence(reports):
    arguments = reports.read("arguments")["arguments"]
    return [", ".join(names(one) for one in arguments if one["support"] == "without_influence") + "."]


TABLES = {f"arguments-{section}": of_section(section) for section in ["server", "deployment", "scheduler", "prediction", "load"]}
TABLES |= {"arguments-not-modelled": not_modelled, "arguments-without-influence": without_influence}
