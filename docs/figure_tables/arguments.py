"""Tables of arguments, a section each, from the schema that the command reads them by."""

from .markdown import table


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


def of_support(reports, support):
    return [one for one in reports.read("arguments")["arguments"] if one["support"] == support]


def of_section(section):
    """The modelled arguments of a section."""

    def listed(reports):
        arguments = [one for one in of_support(reports, "modelled") if one["section"] == section]
        rows = [[names(one), cell(value(one)), cell(one["default"]), cell(one["help"])] for one in arguments]
        return table(["argument", "value", "default", "meaning"], rows, numbers=False)

    return listed


def not_modelled(reports):
    rows = [[names(one), cell(one["help"])] for one in of_support(reports, "not_modelled")]
    return table(["argument", "why it is refused"], rows, numbers=False)


def without_influence(reports):
    return [", ".join(names(one) for one in of_support(reports, "without_influence")) + "."]


TABLES = {f"arguments-{section}": of_section(section) for section in ["server", "deployment", "scheduler", "prediction", "load"]}
TABLES |= {"arguments-not-modelled": not_modelled, "arguments-without-influence": without_influence}
