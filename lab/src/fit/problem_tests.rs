//! Checks of rows and parameters, laws of the cost and its derivatives. Uses `problem`.

use proptest::prelude::*;

use super::*;

fn parameters(count: usize) -> Vec<Parameter> {
    let bounds = (f64::NEG_INFINITY, f64::INFINITY);
    vec![Parameter { name: "p", unit: "1", prior: 1.0, prior_sd: 0.3, bounds }; count]
}

fn cost(problem: &Problem, values: &[f64]) -> f64 {
    solver::cost(problem, values).unwrap()
}

fn gradient(problem: &Problem, values: &[f64]) -> Vec<f64> {
    solver::slopes(problem, values).unwrap().gradient
}

fn any_row() -> impl Strategy<Value = FitRow> {
    (0.0..2.0, prop::collection::vec(0.0..5.0, 3), 0.5..50.0, 0.02..0.5, 0.1..3.0)
        .prop_map(|(offset, x, measured, sd, weight)| FitRow { offset, x, measured, sd, weight, target: Target::Ttft })
}

proptest! {
    #[test]
    fn gradient_is_the_finite_difference_of_the_cost(
        rows in prop::collection::vec(any_row(), 2..20),
        values in prop::collection::vec(-1.0..3.0_f64, 3),
    ) {
        let problem = Problem::new("random", parameters(3), rows).unwrap();
        let slopes = gradient(&problem, &values);
        for (i, gradient) in slopes.iter().enumerate() {
            let step = 1e-7;
            let moved = |by: f64| {
                let mut values = values.clone();
                values[i] += by;
                cost(&problem, &values)
            };
            let difference = (moved(step) - moved(-step)) / (2.0 * step);
            let scale = 1.0 + gradient.abs() + 1e-4 * cost(&problem, &values).abs();
            prop_assert!((difference - gradient).abs() < 1e-2 * scale, "{i}: {difference} {gradient}");
        }
    }

    #[test]
    fn cost_is_finite_and_no_less_than_zero_anywhere(
        rows in prop::collection::vec(any_row(), 2..5),
        values in prop::collection::vec(prop::num::f64::ANY, 3),
    ) {
        let problem = Problem::new("random", parameters(3), rows).unwrap();
        let cost = cost(&problem, &values);
        prop_assert!(cost.is_finite() && cost >= 0.0, "{cost}");
    }
}

#[test]
fn curvature_of_one_row_is_worked_by_hand() {
    // predicted = 2 + 3·1 + 5·1 = 10 = measured: residual 0, derivative of the residual by θ is x / (10·0.1) = (3, 5).
    let row = FitRow { offset: 2.0, x: vec![3.0, 5.0], measured: 10.0, sd: 0.1, weight: 2.0, target: Target::Ttft };
    let nothing = FitRow { weight: 0.0, ..row.clone() };
    let problem = Problem::new("hand", parameters(2), vec![row, nothing]).unwrap();
    let curvature = solver::slopes(&problem, &[1.0, 1.0]).unwrap().curvature;
    let expected = [[18.0 + 1.0 / 0.09, 30.0], [30.0, 50.0 + 1.0 / 0.09]];
    for (i, expected) in expected.iter().enumerate() {
        for (j, expected) in expected.iter().enumerate() {
            assert!((curvature[(i, j)] - expected).abs() < 1e-9, "{i} {j}: {}", curvature[(i, j)]);
        }
    }
    assert!(gradient(&problem, &[1.0, 1.0]).iter().all(|slope| slope.abs() < 1e-12));
}

#[test]
fn a_prediction_below_zero_still_knows_which_way_is_up() {
    let row = FitRow { offset: 0.0, x: vec![1.0], measured: 1.0, sd: 0.1, weight: 1.0, target: Target::Ttft };
    let problem = Problem::new("below", parameters(1), vec![row.clone(), row]).unwrap();
    let costs: Vec<f64> = [-5.0, -1.0, 0.0, 0.0005, 0.002, 0.5].iter().map(|v| cost(&problem, &[*v])).collect();
    assert!(costs.windows(2).all(|pair| pair[0] > pair[1]), "{costs:?}");
    assert!(gradient(&problem, &[-5.0])[0] < 0.0);
}

fn factor(name: &'static str) -> Parameter {
    Parameter { name, unit: "1", prior: 1.0, prior_sd: 0.2, bounds: (0.3, 3.0) }
}

fn row_of(x: &[f64], measured: f64) -> FitRow {
    FitRow { offset: 0.0, x: x.to_vec(), measured, sd: 0.1, weight: 1.0, target: Target::Ttft }
}

fn said(parameters: Vec<Parameter>, rows: Vec<FitRow>) -> String {
    Problem::new("rows.csv", parameters, rows).unwrap_err().to_string()
}

#[test]
fn no_row_and_one_row_are_too_few() {
    let none = said(vec![factor("a")], vec![]);
    assert_eq!(none, "rows.csv: there are no rows: a fit needs at least two");
    assert!(said(vec![factor("a")], vec![row_of(&[1.0], 5.0)]).contains("there is one row"));
}

#[test]
fn the_first_bad_row_is_named_and_the_others_are_counted() {
    let good = row_of(&[1.0, 1.0], 5.0);
    let spoilt: [fn(&mut FitRow); 7] = [
        |row| row.x[1] = f64::INFINITY,
        |row| row.x.truncate(1),
        |row| row.measured = -3.0,
        |row| row.measured = f64::NAN,
        |row| row.sd = 0.0,
        |row| row.weight = -1.0,
        |row| row.offset = f64::NAN,
    ];
    for spoil in spoilt {
        let mut bad = good.clone();
        spoil(&mut bad);
        let error = said(vec![factor("projections"), factor("step_us")], vec![good.clone(), bad.clone(), bad]);
        assert!(error.contains("rows.csv: row 2: measured") && error.contains("(1 further rows"), "{error}");
    }
}

#[test]
fn the_cost_of_two_rows_is_worked_by_hand() {
    let factor = Parameter { prior_sd: 0.5, ..factor("factor") };
    let problem = Problem::new("example", vec![factor], vec![row_of(&[100.0], 150.0); 2]).unwrap();
    // At 1.5 the rows are met and the prior costs (0.5 / 0.5)² / 2; at 1 each row is off by ln(1.5) / 0.1 = 4.05.
    assert!((cost(&problem, &[1.5]) - 0.5).abs() < 1e-12);
    assert!((cost(&problem, &[1.0]) - 2.0 * 1.5 * (4.0547 - 0.75)).abs() < 1e-3);
}

#[test]
fn rows_without_weight_are_no_rows() {
    let mut without = row_of(&[1.0], 5.0);
    without.weight = 0.0;
    assert!(said(vec![factor("a")], vec![without; 2]).contains("every row's weight is 0"));
}

#[test]
fn a_parameter_that_no_row_has_is_noted() {
    let alike = Problem::new("t", vec![factor("a"), factor("b")], vec![row_of(&[1.0, 0.0], 5.0); 3]).unwrap();
    assert_eq!(alike.notes(), ["no row has 'b': it stays at its prior"]);
}

fn half(x: &[f64], measured: f64) -> FitRow {
    FitRow { offset: 0.5, ..row_of(x, measured) }
}

fn rows_sha256(rows: &[FitRow]) -> String {
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
    // printf 'ridgepoint rows 2\n' | sha256sum
    let none = rows_sha256(&[]);
    assert_eq!(none, "0d042af0d3e81c5d2f5b01c985395caaf0e33f2fda126ac621d8bbb2fc2ab671");
}
