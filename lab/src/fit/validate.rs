//! What parameters and rows must be before anything is fitted to them, and what is worth a note. Uses `problem`, `error`.

use super::problem::{Parameter, Row};
use ridgepoint::{Error, Result};

/// Problems that a message lists; the rest are counted.
const MAX_LISTED: usize = 20;

pub(super) fn check(origin: &str, parameters: &[Parameter], rows: &[Row]) -> Result<()> {
    let mut problems: Vec<String> = Vec::new();
    if parameters.is_empty() {
        problems.push("there are no parameters: a fit needs at least one".to_owned());
    }
    match rows.len() {
        0 => problems.push("there are no rows: a fit needs at least two".to_owned()),
        1 => {
            problems.push("there is one row: a fit needs at least two, as one says nothing of its own error".to_owned())
        }
        _ => {}
    }
    for parameter in parameters {
        check_parameter(parameter, &mut problems);
    }
    for (index, row) in rows.iter().enumerate() {
        check_row(index + 1, row, parameters, &mut problems);
    }
    if rows.len() > 1 && rows.iter().all(|row| row.weight <= 0.0) {
        problems.push("every row's weight is 0: at least one must count".to_owned());
    }
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        problems.truncate(MAX_LISTED);
        problems.push(format!("and {more} more"));
    }
    Err(Error::invalid(origin, problems))
}

fn check_parameter(parameter: &Parameter, problems: &mut Vec<String>) {
    let Parameter { name, prior, prior_sd, lower, upper, .. } = parameter;
    if !(prior_sd.is_finite() && *prior_sd > 0.0) {
        problems.push(format!("parameter '{name}': prior_sd = {prior_sd} must be above 0 and finite"));
    }
    if !(lower <= upper && *lower < f64::INFINITY && *upper > f64::NEG_INFINITY) {
        problems.push(format!("parameter '{name}': lower = {lower} must be at most upper = {upper}"));
    } else if !(prior.is_finite() && lower <= prior && prior <= upper) {
        problems.push(format!("parameter '{name}': prior = {prior} must be a number from {lower} to {upper}"));
    }
}

fn check_row(number: usize, row: &Row, parameters: &[Parameter], problems: &mut Vec<String>) {
    let mut bad = |column: &str, found: f64, allowed: &str| {
        problems.push(format!("row {number}: column '{column}': found {found}, must be {allowed}"));
    };
    if !row.offset.is_finite() {
        bad("offset", row.offset, "a finite number");
    }
    for (column, value) in [("measured", row.measured), ("sd", row.sd)] {
        if !(value.is_finite() && value > 0.0) {
            bad(column, value, "above 0 and finite");
        }
    }
    if !(row.weight.is_finite() && row.weight >= 0.0) {
        bad("weight", row.weight, "at least 0 and finite");
    }
    for (x, parameter) in row.x.iter().zip(parameters).filter(|(x, _)| !x.is_finite()) {
        bad(&parameter.name, *x, "a finite number");
    }
    if row.x.len() != parameters.len() {
        let (found, wanted) = (row.x.len(), parameters.len());
        problems.push(format!("row {number}: column 'x': found {found} values, must be {wanted}, one per parameter"));
    }
}

pub(super) fn notes(parameters: &[Parameter], rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let all = |same: fn(&Row, &Row) -> bool| rows.windows(2).all(|pair| matches!(pair, [a, b] if same(a, b)));
    if all(|a, b| a.x == b.x && same(a.offset, b.offset)) {
        notes.push(
            "all rows have the same columns: they say what one combination of the parameters is, priors say how it is shared"
                .to_owned(),
        );
    }
    if all(|a, b| same(a.measured, b.measured)) {
        notes.push("all rows have the same measured value: nothing shows what makes it larger or smaller".to_owned());
    }
    for (index, parameter) in parameters.iter().enumerate() {
        let touched = |row: &Row| row.weight > 0.0 && row.x.get(index).is_some_and(|x| *x != 0.0);
        if !rows.iter().any(touched) {
            notes.push(format!("no row has '{}': it stays at its prior", parameter.name));
        }
    }
    notes
}

fn same(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problem;
    use super::*;

    fn parameter(name: &str) -> Parameter {
        let (name, unit) = (name.to_owned(), "1".to_owned());
        Parameter { name, unit, prior: 1.0, prior_sd: 0.2, lower: 0.3, upper: 3.0 }
    }

    fn row(x: &[f64], measured: f64) -> Row {
        Row { offset: 0.0, x: x.to_vec(), measured, sd: 0.1, weight: 1.0, group: 0 }
    }

    fn said(parameters: Vec<Parameter>, rows: Vec<Row>) -> String {
        Problem::new("rows.csv", parameters, rows).unwrap_err().to_string()
    }

    #[test]
    fn no_row_and_one_row_are_too_few() {
        let none = said(vec![parameter("a")], vec![]);
        assert_eq!(none, "rows.csv: there are no rows: a fit needs at least two");
        assert!(said(vec![parameter("a")], vec![row(&[1.0], 5.0)]).contains("there is one row"));
    }

    #[test]
    fn every_bad_number_is_named_with_its_row_and_column() {
        let mut fourth = row(&[1.0, f64::INFINITY], -3.0);
        (fourth.sd, fourth.weight, fourth.offset) = (0.0, -1.0, f64::NAN);
        let rows = vec![row(&[1.0, 1.0], 5.0), row(&[f64::NAN, 1.0], 5.0), row(&[1.0], 5.0), fourth];
        let error = said(vec![parameter("projections"), parameter("step_us")], rows);
        for expected in [
            "row 2: column 'projections': found NaN, must be a finite number",
            "row 3: column 'x': found 1 values, must be 2, one per parameter",
            "row 4: column 'step_us': found inf, must be a finite number",
            "row 4: column 'measured': found -3, must be above 0 and finite",
            "row 4: column 'sd': found 0, must be above 0 and finite",
            "row 4: column 'weight': found -1, must be at least 0 and finite",
            "row 4: column 'offset': found NaN, must be a finite number",
        ] {
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn thousands_of_problems_are_counted_behind_the_first_twenty() {
        let error = said(vec![parameter("a")], vec![row(&[1.0], f64::NAN); 1000]);
        assert!(error.contains("row 20:") && !error.contains("row 21:") && error.ends_with("and 980 more"), "{error}");
    }

    #[test]
    fn parameters_need_a_prior_within_their_bounds() {
        let rows = vec![row(&[1.0, 1.0], 5.0); 2];
        let mut outside = parameter("outside");
        outside.prior = 4.0;
        let mut crossed = parameter("crossed");
        (crossed.lower, crossed.prior_sd) = (f64::NAN, 0.0);
        let error = said(vec![outside, crossed], rows);
        assert!(error.contains("parameter 'outside': prior = 4 must be a number from 0.3 to 3"), "{error}");
        assert!(error.contains("parameter 'crossed': lower = NaN must be at most upper = 3"), "{error}");
        assert!(error.contains("parameter 'crossed': prior_sd = 0 must be above 0"), "{error}");
    }

    #[test]
    fn rows_without_weight_are_no_rows() {
        let mut without = row(&[1.0], 5.0);
        without.weight = 0.0;
        assert!(said(vec![parameter("a")], vec![without; 2]).contains("every row's weight is 0"));
    }

    #[test]
    fn identical_rows_constant_targets_and_absent_columns_are_notes() {
        let alike = Problem::new("t", vec![parameter("a"), parameter("b")], vec![row(&[1.0, 0.0], 5.0); 3]).unwrap();
        assert_eq!(alike.notes().len(), 3, "{:?}", alike.notes());
        assert_eq!(alike.notes()[2], "no row has 'b': it stays at its prior");
        let varied = vec![row(&[1.0], 5.0), row(&[2.0], 6.0)];
        assert!(Problem::new("t", vec![parameter("a")], varied).unwrap().notes().is_empty());
    }
}
