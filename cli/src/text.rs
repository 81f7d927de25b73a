//! Text layout: tables without boxes, wrapped paragraphs, text without control characters.

use std::borrow::Cow;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
pub use ridgepoint_lab::words::{count, four_digits, number, percent, plural, quantity, shown};
use ridgepoint_replay::Distribution;
use serde::Serialize;

/// Width of paragraphs if stdout is no terminal.
const DEFAULT_WIDTH: usize = 100;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none().junction(' '));

/// A text for people that grows from top to bottom.
pub struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// An empty page whose paragraphs are as wide as the terminal, within reason.
    pub fn new() -> Self {
        let width = Table::new().width().map_or(DEFAULT_WIDTH, usize::from).clamp(40, 160);
        Page { text: String::new(), width }
    }

    /// Adds a line as it is.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds a paragraph behind `label`, its further lines indented by the width of the label.
    pub fn paragraph(&mut self, label: &str, text: &str) {
        self.text.push_str(&wrap(label, text, self.width));
    }

    /// Adds a paragraph behind a label, in a list of such paragraphs.
    pub fn fact(&mut self, label: &str, text: &str) {
        self.paragraph(&format!("{label:<12}"), text);
    }

    /// Adds a table with a line per row. In a terminal that is too narrow the columns titled as in `spare` are left out, the
    /// first first, until the table fits, and a line says so: a missing cell is easier to read than a broken one.
    pub fn rows<T>(&mut self, rows: &Rows<T>, spare: &[&str]) {
        self.text.push_str(&rows.fitted(spare, Table::new().width().map(usize::from)));
    }

    /// Adds warnings after an empty line, if there are any.
    pub fn warnings(&mut self, warnings: &[String]) {
        if !warnings.is_empty() {
            self.blank();
        }
        warnings.iter().for_each(|warning| self.paragraph("warning: ", warning));
    }

    /// Adds an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// The whole text.
    pub fn text(self) -> String {
        self.text
    }
}

/// The rows of a table and its columns.
pub struct Rows<T> {
    rows: Vec<T>,
    titles: Vec<(String, CellAlignment)>,
    /// The texts of each row.
    cells: Vec<Vec<String>>,
}

impl<T> Rows<T> {
    /// A table of these rows without columns.
    pub fn of(rows: impl IntoIterator<Item = T>) -> Self {
        let rows: Vec<T> = rows.into_iter().collect();
        Rows { titles: Vec::new(), cells: vec![Vec::new(); rows.len()], rows }
    }

    /// Adds a column of texts.
    pub fn left(self, title: &str, cell: impl Fn(&T) -> String) -> Self {
        self.column(title, CellAlignment::Left, cell)
    }

    /// Adds a column of numbers.
    pub fn right(self, title: &str, cell: impl Fn(&T) -> String) -> Self {
        self.column(title, CellAlignment::Right, cell)
    }

    /// Adds the mean of a distribution under its title, and the percentiles.
    pub fn distribution(self, mean_title: &str, of: impl Fn(&T) -> Option<Distribution>) -> Self {
        let mean = self.right(mean_title, |row| number(of(row).map(|of| of.mean)));
        let p50 = mean.right("p50", |row| number(of(row).map(|of| of.p50)));
        let p90 = p50.right("p90", |row| number(of(row).map(|of| of.p90)));
        p90.right("p99", |row| number(of(row).map(|of| of.p99)))
    }

    fn column(mut self, title: &str, alignment: CellAlignment, cell: impl Fn(&T) -> String) -> Self {
        self.titles.push((title.to_owned(), alignment));
        self.rows.iter().zip(&mut self.cells).for_each(|(row, cells)| cells.push(cell(row)));
        self
    }

    /// The table as text. If it is wider than `width` it loses the `spare` columns.
    fn fitted(&self, spare: &[&str], width: Option<usize>) -> String {
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).add_rows(&self.cells);
        table.set_header(self.titles.iter().map(|(title, _)| title));
        for (column, (_, alignment)) in table.column_iter_mut().zip(&self.titles) {
            column.set_padding((0, 1)).set_cell_alignment(*alignment);
        }
        let lines = |table: &Table| table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<String>>();
        let mut left_out = Vec::new();
        for title in spare.iter().filter(|title| self.titles.iter().any(|(known, _)| known == *title)) {
            if lines(&table).iter().all(|line| width.is_none_or(|width| line.chars().count() <= width)) {
                break;
            }
            for (column, _) in table.column_iter_mut().zip(&self.titles).filter(|(_, (known, _))| known == title) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
            left_out.push(*title);
        }
        let more = match left_out.as_slice() {
            [] => String::new(),
            titles => format!("(a wider terminal shows {} too)\n", titles.join(", ")),
        };
        lines(&table).join("\n") + "\n" + &more
    }
}

/// Breaks `text` at blanks into lines of at most `width` characters. The first begins with `label`, the others with as many
/// blanks.
fn wrap(label: &str, text: &str, width: usize) -> String {
    let indent = label.chars().count();
    let mut out = label.to_owned();
    let mut column = indent;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width.max(indent + 20) {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// The name of a value as JSON has it; empty for what is no text there.
pub fn json_name(of: &impl Serialize) -> String {
    serde_json::to_value(of).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

/// The text with escapes as in JSON (`\u001b`) in place of control characters and of characters that turn the direction of
/// writing, so that no name steers a terminal. Line breaks and tabs stay. JSON stays JSON, as it has such characters in texts
/// alone.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| match c {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_odd(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_line_breaks_stay() {
        assert!(matches!(printable("µs\tok\n"), Cow::Borrowed(_)));
        assert_eq!(printable("a\x1b[31mb\r\x07\u{9b}\u{202e}\n"), "a\\u001b[31mb\\u000d\\u0007\\u009b\\u202e\n");
        let json = serde_json::to_string("\u{9b}\u{7f}").unwrap();
        assert_eq!(serde_json::from_str::<String>(&printable(&json)).unwrap(), "\u{9b}\u{7f}");
    }

    #[test]
    fn narrow_terminals_lose_the_spare_columns_only() {
        let rows = Rows::of([("gate_up_proj", "22.71 G", "24.694 ms")])
            .left("name", |of| of.0.to_owned())
            .right("bytes", |of| of.1.to_owned())
            .right("time", |of| of.2.to_owned());
        let full = rows.fitted(&["bytes"], None);
        assert!(full.contains("22.71 G"), "{full}");
        assert_eq!(rows.fitted(&["bytes"], Some(80)), full);
        let narrow = rows.fitted(&["none", "bytes"], Some(24));
        assert!(!narrow.contains("22.71 G") && narrow.contains("gate_up_proj  24.694 ms"), "{narrow}");
        assert!(narrow.ends_with("(a wider terminal shows bytes too)\n"), "{narrow}");
        assert!(rows.fitted(&[], Some(5)).contains("gate_up_proj"));
        let twice = Rows::of(["a"])
            .left("name", |of| (*of).to_owned())
            .right("error", |_| "1 %".to_owned())
            .right("ms", |_| "5".to_owned())
            .right("error", |_| "2 %".to_owned());
        let narrow = twice.fitted(&["error"], Some(8));
        assert!(!narrow.contains('%') && narrow.ends_with("(a wider terminal shows error too)\n"), "{narrow}");
    }

    #[test]
    fn paragraphs_are_indented_by_their_label() {
        let text = wrap("! ", "aaaa bbbb cccc dddd eeee ffff", 24);
        assert_eq!(text, "! aaaa bbbb cccc dddd\n  eeee ffff\n");
    }
}
