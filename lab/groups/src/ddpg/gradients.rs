//! Tests that compare the gradients with finite differences.

use super::agent::{ActionEncoding, activate, actor_gradient};
use super::net::{Adam, Mlp};

/// A net whose last layer is not close to zero, so that differences are larger than rounding errors.
fn net(sizes: &[usize], rng: &mut fastrand::Rng) -> Mlp {
    let mut net = Mlp::new(sizes, rng);
    net.params.iter_mut().for_each(|p| *p = rng.f32() - 0.5);
    net
}

/// Number of parameters whose difference quotient deviates. A ReLU that switches within the step causes that, so a few are allowed.
fn off(analytic: &[f32], mut loss: impl FnMut(usize, f32) -> f64) -> usize {
    const STEP: f32 = 2e-3;
    let largest = analytic.iter().fold(0.0_f32, |m, g| m.max(g.abs()));
    assert!(largest > 1e-3, "there is no gradient to check");
    let numeric = |i: usize, loss: &mut dyn FnMut(usize, f32) -> f64| (loss(i, STEP) - loss(i, -STEP)) / f64::from(2.0 * STEP);
    (0..analytic.len()).filter(|i| (numeric(*i, &mut loss) - f64::from(analytic[*i])).abs() > 5e-3 * f64::from(largest)).count()
}

#[test]
fn backward_returns_the_gradient_of_the_net() {
    let mut rng = fastrand::Rng::with_seed(1);
    let net = net(&[5, 9, 7, 3], &mut rng);
    let input: Vec<f32> = (0..4 * 5).map(|_| rng.f32() * 2.0 - 1.0).collect();
    let wanted: Vec<f32> = (0..4 * 3).map(|_| rng.f32()).collect();
    let loss = |net: &Mlp, input: &[f32]| -> f64 {
        net.forward(input, 4).output().iter().zip(&wanted).map(|(o, w)| f64::from(o - w).powi(2) / 2.0).sum()
    };
    let tape = net.forward(&input, 4);
    let by: Vec<f32> = tape.output().iter().zip(&wanted).map(|(o, w)| o - w).collect();
    let mut gradient = vec![0.0; net.params.len()];
    let by_input = net.backward(&tape, &by, Some(&mut gradient));

    let by_params = off(&gradient, |i, step| {
        let mut other = net.clone();
        other.params[i] += step;
        loss(&other, &input)
    });
    assert!(by_params <= gradient.len() / 50, "{by_params} of {} are off", gradient.len());
    let of_input = off(&by_input, |i, step| {
        let mut other = input.clone();
        other[i] += step;
        loss(&net, &other)
    });
    assert!(of_input <= 1, "{of_input} of {} are off", by_input.len());
}

#[test]
fn actor_gradient_follows_the_critic() {
    for kind in [ActionEncoding::Scores, ActionEncoding::OneHot] {
        let mut rng = fastrand::Rng::with_seed(2);
        let (actor, critic) = (net(&[4, 8, 3], &mut rng), net(&[7, 8, 1], &mut rng));
        let states: Vec<f32> = (0..5 * 4).map(|_| rng.f32() * 2.0 - 1.0).collect();
        let mask = [true, false, true];
        let masks = vec![&mask[..]; 5];
        let gradient = actor_gradient(&actor, &critic, kind, &states, &masks);
        let loss = |actor: &Mlp| -> f64 {
            let judged = |s: usize| {
                let state = &states[s * 4..(s + 1) * 4];
                let mut action = actor.forward(state, 1).output().to_vec();
                activate(kind, &mut action, &mask);
                f64::from(critic.forward(&[state, &action].concat(), 1).output()[0])
            };
            -(0..5).map(judged).sum::<f64>() / 5.0
        };
        let wrong = off(&gradient, |i, step| {
            let mut other = actor.clone();
            other.params[i] += step;
            loss(&other)
        });
        assert!(wrong <= gradient.len() / 25, "{kind:?}: {wrong} of {} are off", gradient.len());
    }
}

#[test]
fn activate_masks_places_without_room() {
    let mut scores = [3.0, 9.0, 1.0];
    activate(ActionEncoding::Scores, &mut scores, &[true, false, true]);
    assert_eq!(super::agent::choice(&scores, &[true, false, true]), 0);
    let mut probabilities = [3.0, 9.0, 1.0];
    activate(ActionEncoding::OneHot, &mut probabilities, &[true, false, true]);
    assert!(probabilities[1] == 0.0 && (probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
}

#[test]
fn adam_finds_a_minimum_and_follow_moves_targets() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut net = Mlp::new(&[1, 16, 1], &mut rng);
    let start = net.clone();
    let mut adam = Adam::new(&net, 1e-2);
    let input: Vec<f32> = (0..32).map(|i| i as f32 / 16.0 - 1.0).collect();
    let error = |net: &Mlp| -> Vec<f32> { net.forward(&input, 32).output().iter().zip(&input).map(|(o, x)| o - x * x).collect() };
    for _ in 0..500 {
        let mut gradient = vec![0.0; net.params.len()];
        net.backward(&net.forward(&input, 32), &error(&net), Some(&mut gradient));
        adam.step(&mut net, &gradient);
    }
    assert!(error(&net).iter().all(|e| e.abs() < 0.1), "{:?}", error(&net));

    let mut target = start.clone();
    target.follow(&net, 0.25);
    for ((t, s), n) in target.params.iter().zip(&start.params).zip(&net.params) {
        assert!((t - (0.75 * s + 0.25 * n)).abs() < 1e-6);
    }
}
