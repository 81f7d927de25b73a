//! Laws of the cost and its derivatives. Uses `problem`.

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
        .prop_map(|(offset, x, measured, sd, weight)| Row { offset, x, measured, sd, weight, group: 0 })
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
    let row = Row { offset: 2.0, x: vec![3.0, 5.0], measured: 10.0, sd: 0.1, weight: 2.0, group: 0 };
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
    let row = Row { offset: 0.0, x: vec![1.0], measured: 1.0, sd: 0.1, weight: 1.0, group: 0 };
    let problem = Problem::new("below", parameters(1), vec![row.clone(), row]).unwrap();
    let costs: Vec<f64> = [-5.0, -1.0, 0.0, 0.0005, 0.002, 0.5].iter().map(|v| problem.cost(&[*v])).collect();
    assert!(costs.windows(2).all(|pair| pair[0] > pair[1]), "{costs:?}");
    assert!(problem.gradient(&[-5.0])[0] < 0.0);
}
