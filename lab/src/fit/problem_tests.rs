//! Checks of rows and parameters, laws of the cost and its derivatives. Uses `problem`.

use proptest::prelude::*;

use super::*;

fn parameters(count: usize) -> Vec<Parameter> {
    let one = |i: usize| Parameter {
        name: format!("p{i}"),
        unit: "1".to_owned(),
        prior: 1.0,
        prior_sd: 0.3,
        lower: f64::NEG_INFINITY,
        upper: f64::INFINITY,
    };
    (0..count).map(one).collect()
}

fn any_row() -> impl Strategy<Value = Row> {
    (0.0..2.0, prop::collection::vec(0.0..5.0, 3), 0.5..50.0, 0.02..0.5, 0.1..3.0)
        .prop_map(|(offset, x, measured, sd, weight)| Row { offset, x, measured, sd, weight, target: Target::Ttft })
}

proptest! {
    #[test]
    fn gradient_is_the_finite_difference_of_the_cost(
        rows in prop::collection::vec(any_row(), 2..20),
        values in prop::collection::vec(-1.0..3.0_f64, 3),
    ) {
        let problem = Problem::new("random", parameters(3), rows).unwrap();
        let gradient = problem.gradient(&values);
        for (i, gradient) in gradient.iter().enumerate() {
            let step = 1e-7;
            let moved = |by: f64| {
                let mut values = values.clone();
                values[i] += by;
                problem.cost(&values)
            };
            let difference = (moved(step) - moved(-step)) / (2.0 * step);
            let scale = 1.0 + gradient.abs() + 1e-4 * problem.cost(&values).abs();
            prop_assert!((difference - gradient).abs() < 1e-2 * scale, "{i}: {difference} {gradient}");
        }
    }

    #[test]
    fn cost_is_finite_and_no_less_than_zero_anywhere(
        rows in prop::collection::vec(any_row(), 2..5),
        values in prop::collection::vec(prop::num::f64::ANY, 3),
    ) {
        let problem = Problem::new("random", parameters(3), rows).unwrap();
        let cost = problem.cost(&values);
        prop_assert!(cost.is_finite() && cost >= 0.0, "{cost}");
    }
}

#[test]
fn curvature_of_one_row_is_worked_by_hand() {
    // predicted = 2 + 3·1 + 5·1 = 10 = measured: residual 0, derivative of the residual by θ is x / (10·0.1) = (3, 5).
    let row = Row { offset: 2.0, x: vec![3.0, 5.0], measured: 10.0, sd: 0.1, weight: 2.0, target: Target::Ttft };
    let nothing = Row { weight: 0.0, ..row.clone() };
    let problem = Problem::new("hand", parameters(2), vec![row, nothing]).unwrap();
    let curvature = problem.curvature(&[1.0, 1.0]);
    let expected = [[18.0 + 1.0 / 0.09, 30.0], [30.0, 50.0 + 1.0 / 0.09]];
    for (i, expected) in expected.iter().enumerate() {
        for (j, expected) in expected.iter().enumerate() {
            assert!((curvature[(i, j)] - expected).abs() < 1e-9, "{i} {j}: {}", curvature[(i, j)]);
        }
    }
    assert!(problem.gradient(&[1.0, 1.0]).iter().all(|slope| slope.abs() < 1e-12));
}

#[test]
fn a_prediction_below_zero_still_knows_which_way_is_up() {
    let row = Row { offset: 0.0, x: vec![1.0], measured: 1.0, sd: 0.1, weight: 1.0, target: Target::Ttft };
    let problem = Problem::new("below", parameters(1), vec![row.clone(), row]).unwrap();
    let costs: Vec<f64> = [-5.0, -1.0, 0.0, 0.0005, 0.002, 0.5].iter().map(|v| problem.cost(&[*v])).collect();
    assert!(costs.windows(2).all(|pair| pair[0] > pair[1]), "{costs:?}");
    assert!(problem.gradient(&[-5.0])[0] < 0.0);
}

fn factor(name: &str) -> Parameter {
    let (name, unit) = (name.to_owned(), "1".to_owned());
    Parameter { name, unit, prior: 1.0, prior_sd: 0.2, lower: 0.3, upper: 3.0 }
}

fn row_of(x: &[f64], measured: f64) -> Row {
    Row { offset: 0.0, x: x.to_vec(), measured, sd: 0.1, weight: 1.0, target: Target::Ttft }
}

fn said(parameters: Vec<Parameter>, rows: Vec<Row>) -> String {
    Problem::new("rows.csv", parameters, rows).unwrap_err().to_string()
}

#[test]
fn no_row_and_one_row_are_too_few() {
    let none = said(vec![factor("a")], vec![]);
    assert_eq!(none, "rows.csv: there are no rows: a fit needs at least two");
    assert!(said(vec![factor("a")], vec![row_of(&[1.0], 5.0)]).contains("there is one row"));
}

#[test]
fn every_bad_number_is_named_with_its_row_and_column() {
    let mut fourth = row_of(&[1.0, f64::INFINITY], -3.0);
    (fourth.sd, fourth.weight, fourth.offset) = (0.0, -1.0, f64::NAN);
    let rows = vec![row_of(&[1.0, 1.0], 5.0), row_of(&[f64::NAN, 1.0], 5.0), row_of(&[1.0], 5.0), fourth];
    let error = said(vec![factor("projections"), factor("step_us")], rows);
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
    let error = said(vec![factor("a")], vec![row_of(&[1.0], f64::NAN); 1000]);
    assert!(error.contains("row 20:") && !error.contains("row 21:") && error.ends_with("and 980 more"), "{error}");
}

#[test]
fn parameters_need_a_prior_within_their_bounds() {
    let rows = vec![row_of(&[1.0, 1.0], 5.0); 2];
    let mut outside = factor("outside");
    outside.prior = 4.0;
    let mut crossed = factor("crossed");
    (crossed.lower, crossed.prior_sd) = (f64::NAN, 0.0);
    let error = said(vec![outside, crossed], rows);
    assert!(error.contains("parameter 'outside': prior = 4 must be a number from 0.3 to 3"), "{error}");
    assert!(error.contains("parameter 'crossed': lower = NaN must be at most upper = 3"), "{error}");
    assert!(error.contains("parameter 'crossed': prior_sd = 0 must be above 0"), "{error}");
}

#[test]
fn rows_without_weight_are_no_rows() {
    let mut without = row_of(&[1.0], 5.0);
    without.weight = 0.0;
    assert!(said(vec![factor("a")], vec![without; 2]).contains("every row's weight is 0"));
}

#[test]
fn identical_rows_constant_targets_and_absent_columns_are_notes() {
    let alike = Problem::new("t", vec![factor("a"), factor("b")], vec![row_of(&[1.0, 0.0], 5.0); 3]).unwrap();
    assert_eq!(alike.notes().len(), 3, "{:?}", alike.notes());
    assert_eq!(alike.notes()[2], "no row has 'b': it stays at its prior");
    let varied = vec![row_of(&[1.0], 5.0), row_of(&[2.0], 6.0)];
    assert!(Problem::new("t", vec![factor("a")], varied).unwrap().notes().is_empty());
}

fn half(x: &[f64], measured: f64) -> Row {
    Row { offset: 0.5, ..row_of(x, measured) }
}

fn rows_sha256(rows: &[Row]) -> String {
    Problem { parameters: Vec::new(), rows: rows.to_vec() }.rows_sha256()
}

#[test]
fn order_and_groups_do_not_matter_and_numbers_do() {
    let rows = vec![half(&[1.0, 0.0], 5.0), half(&[2.0, 3.0], 6.0)];
    let hash = rows_sha256(&rows);
    let mut turned = vec![rows[1].clone(), rows[0].clone()];
    (turned[0].target, turned[1].x[1]) = (Target::Decoding, -0.0);
    assert_eq!(rows_sha256(&turned), hash);
    let mut other = rows.clone();
    other[0].measured = 5.000_000_000_000_001;
    assert_ne!(rows_sha256(&other), hash);
    other[0] = half(&[0.0, 1.0], 5.0);
    assert_ne!(rows_sha256(&other), hash);
    assert_ne!(rows_sha256(&rows[..1]), hash);
}

#[test]
fn text_is_the_documented_one() {
    assert_eq!(half(&[1.0, 0.0], 1234.5).hashed_line(), "5e-1;1e0,0e0;1.2345e3;1e-1;1e0\n");
    // printf 'ridgepoint rows 1\n' | sha256sum
    let none = rows_sha256(&[]);
    assert_eq!(none, "4e243ffbd02fc5943da164d2d3dcf95a51cd1405de286e02f97b9f3f6477b6b9");
}
