//! Text layout: tables without boxes, wrapped paragraphs, grouped digits.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};

/// Width of paragraphs where no terminal says otherwise.
const DEFAULT_WIDTH: usize = 100;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none().junction(' '));

/// A table with these column titles; those whose title begins with `>` are aligned to the right.
pub fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| title.trim_start_matches('>')).collect::<Vec<_>>());
    for (index, title) in titles.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 1));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// The table as text, a line break at its end. In a terminal that is too narrow the columns in `spare` are left out, the
/// first first, those of one title together, until it fits, and a line says so: a broken cell is harder to read than a missing
/// one.
pub fn rendered(table: Table, spare: &[&str]) -> String {
    let terminal = table.width().map(usize::from);
    fitted(table, spare, terminal)
}

fn fitted(mut table: Table, spare: &[&str], width: Option<usize>) -> String {
    let mut left_out = Vec::new();
    let mut spare = spare.iter();
    loop {
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        if width.is_none_or(|width| widest <= width) {
            break;
        }
        let Some(title) = spare.next() else { break };
        let titles = table.header().map(|header| header.cell_iter().map(|cell| cell.content()).collect::<Vec<_>>());
        let known: Vec<bool> = titles.iter().flatten().map(|known| known == title).collect();
        for index in (0..known.len()).filter(|index| known.get(*index) == Some(&true)) {
            if let Some(column) = table.column_mut(index) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        if known.contains(&true) {
            left_out.push(*title);
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !left_out.is_empty() {
        text.push_str(&format!("(a wider terminal shows {} too)\n", left_out.join(", ")));
    }
    text
}

/// Columns of the terminal, or a readable width where there is none.
pub fn width() -> usize {
    Table::new().width().map_or(DEFAULT_WIDTH, usize::from).clamp(40, 160)
}

/// Breaks `text` at blanks into lines of at most `width` characters, the first after `first` and the others after as many
/// blanks.
pub fn wrap(first: &str, text: &str, width: usize) -> String {
    let indent = first.chars().count();
    let mut out = first.to_owned();
    let mut column = indent;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 {
            if column + 1 + length > width.max(indent + 20) {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// A count with its digits in groups of three: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 decode`, `2 decodes`.
pub fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A share as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Number and unit with an SI prefix: `235.1 MB`.
pub fn quantity(value: f64, unit: &str) -> String {
    let text = ridgepoint::internals::units::si(value);
    if text.contains(' ') { format!("{text}{unit}") } else { format!("{text} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn narrow_terminals_lose_the_spare_columns_only() {
        let make = || {
            let mut made = table(&["name", ">bytes", ">time"]);
            made.add_row(["gate_up_proj", "22.71 G", "24.694 ms"]);
            made
        };
        let full = fitted(make(), &["bytes"], None);
        assert!(full.contains("22.71 G"), "{full}");
        assert_eq!(fitted(make(), &["bytes"], Some(80)), full);
        let narrow = fitted(make(), &["bytes"], Some(24));
        assert!(!narrow.contains("22.71 G") && narrow.contains("gate_up_proj  24.694 ms"), "{narrow}");
        assert!(narrow.ends_with("(a wider terminal shows bytes too)\n"), "{narrow}");
        assert!(fitted(make(), &[], Some(5)).contains("gate_up_proj"));
        let mut twice = table(&["name", ">error", ">ms", ">error"]);
        twice.add_row(["a", "1 %", "5", "2 %"]);
        let narrow = fitted(twice, &["error"], Some(8));
        assert!(!narrow.contains('%') && narrow.ends_with("(a wider terminal shows error too)\n"), "{narrow}");
    }

    #[test]
    fn paragraphs_hang_behind_their_mark() {
        let text = wrap("! ", "aaaa bbbb cccc dddd eeee ffff", 24);
        assert_eq!(text, "! aaaa bbbb cccc dddd\n  eeee ffff\n");
    }

    #[test]
    fn quantities_have_one_blank_before_the_unit() {
        assert_eq!(quantity(235_100_000.0, "B"), "235.1 MB");
        assert_eq!(quantity(12.0, "B"), "12 B");
    }
}
