//! The training of the learned policy, stage by stage. Deterministic by seed; the best weights are chosen by a validation set of instances
//! that are neither trained on nor evaluated on.

use super::actor_critic::{ActorCritic, ActorCriticAgent};
use super::generate::InstanceRanges;
use super::imitate::{self, Imitation};
use super::rollouts::{RolloutTeacher, Rollouts};
use super::samples::Samples;
use crate::ddpg::{Adam, Mlp};
use crate::greedy::Greedy;
use crate::policy::Policy;
use drover_scheduling::groups::learned::{Construction, FEATURES, LearnedModel, Pass, Provenance, ScoreNet};
use drover_scheduling::groups::{CallGraph, Instance, Layout, Weights};

/// What teaches the network, and how long.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Episodes with `cgs-search` as the teacher.
    Imitation(Imitation, usize),
    /// Updates by actor and critic.
    ActorCritic(ActorCritic, usize),
    /// Episodes with rollouts as the teacher.
    Rollouts(Rollouts, usize),
}

/// A training.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedTraining {
    /// Width of the two hidden layers.
    pub width: usize,
    pub stages: Vec<Stage>,
    /// Number of validations in each stage.
    pub validations: usize,
    /// Call graphs of the user, which take the place of Bookinfo and Online Boutique in training and validation.
    pub own: Vec<CallGraph>,
}

impl LearnedTraining {
    /// Only the search as a teacher.
    pub fn imitation(episodes: usize) -> Self {
        Self { width: 16, stages: vec![Stage::Imitation(Imitation::default(), episodes)], validations: 8, own: Vec::new() }
    }

    /// Only actor and critic, from random weights.
    pub fn actor_critic(updates: usize) -> Self {
        let scratch = ActorCritic { warmup: 200, ..ActorCritic::default() };
        Self { width: 16, stages: vec![Stage::ActorCritic(scratch, updates)], validations: 8, own: Vec::new() }
    }

    /// Actor and critic, started from the imitation.
    pub fn imitation_then_actor_critic(episodes: usize, updates: usize) -> Self {
        let mut training = Self::imitation(episodes);
        let gentle = ActorCritic { actor_rate: 2e-4, entropy: 0.01, warmup: 5_000, ..ActorCritic::default() };
        training.stages.push(Stage::ActorCritic(gentle, updates));
        training
    }

    /// Rollouts, started from the imitation: the training of the shipped model.
    pub fn imitation_then_rollouts(episodes: usize, rollouts: usize) -> Self {
        let mut training = Self::imitation(episodes);
        training.stages.push(Stage::Rollouts(Rollouts::default(), rollouts));
        training
    }

    /// The training of the shipped model, with its numbers.
    pub fn shipped() -> Self {
        Self::imitation_then_rollouts(300, 1_600)
    }
}

/// How far a training is.
#[derive(Clone, Debug)]
pub struct TrainingProgress {
    /// The stage, in words.
    pub stage: &'static str,
    /// Episodes or updates done in this stage.
    pub done: usize,
    pub of: usize,
    /// The last validation.
    pub validation: f64,
}

/// The result of a training.
#[derive(Clone, Debug)]
pub struct LearnedResult {
    /// The model with the best weights by the validation set.
    pub model: LearnedModel,
    /// The model with the initial weights.
    pub untrained: LearnedModel,
    /// For each validation: the stage, what was done in it, and the mean of f divided by that of `cgs-greedy`.
    pub validations: Vec<(&'static str, usize, f64)>,
}

/// The weights in training, with the best so far.
struct Learner<'t> {
    net: Mlp,
    best: (f64, ScoreNet),
    validation: &'t [(Instance, f64)],
    weights: Weights,
    course: Vec<(&'static str, usize, f64)>,
}

impl LearnedTraining {
    /// Trains with one seed. `watch` is told how far it is.
    pub fn run(&self, weights: &Weights, seed: u64, watch: &mut dyn FnMut(&TrainingProgress)) -> LearnedResult {
        let on = &mut training_instances(&self.own);
        let mut rng = fastrand::Rng::with_seed(seed);
        let net = Mlp::new(&[FEATURES, self.width, self.width, 1], &mut rng);
        let validation = validation_set(weights, &self.own);
        let untrained = score_net(&net);
        let mut learner =
            Learner { best: (f64::INFINITY, untrained.clone()), net, validation: &validation, weights: *weights, course: Vec::new() };
        learner.validate("untrained", 0);
        for stage in &self.stages {
            let (name, of) = match stage {
                Stage::Imitation(_, of) => ("imitation", *of),
                Stage::ActorCritic(_, of) => ("actor-critic", *of),
                Stage::Rollouts(_, of) => ("rollouts", *of),
            };
            let every = (of / self.validations.max(1)).max(1);
            let mut judge = |learner: &mut Learner<'_>, done: usize| {
                if done.is_multiple_of(every) || done == of {
                    let validation = learner.validate(name, done);
                    watch(&TrainingProgress { stage: name, done, of, validation });
                }
            };
            match stage {
                Stage::Imitation(how, _) => imitation(how, of, on, &mut learner, &mut rng, &mut judge),
                Stage::ActorCritic(how, _) => actor_critic(how, of, on, &mut learner, &mut rng, &mut judge),
                Stage::Rollouts(how, _) => rollouts(how, of, on, &mut learner, &mut rng, &mut judge),
            }
        }
        let provenance = |trained: String| Provenance { seed, trained };
        LearnedResult {
            model: LearnedModel::new(learner.best.1, provenance(self.to_string())),
            untrained: LearnedModel::new(untrained, provenance("untrained".to_owned())),
            validations: learner.course,
        }
    }
}

type Judge<'j> = dyn FnMut(&mut Learner<'_>, usize) + 'j;
type Source<'s> = dyn FnMut(&mut fastrand::Rng) -> Instance + 's;

fn imitation(how: &Imitation, of: usize, on: &mut Source<'_>, learner: &mut Learner<'_>, rng: &mut fastrand::Rng, judge: &mut Judge<'_>) {
    let mut adam = Adam::new(&learner.net, 2e-3);
    let mut samples = Samples::new(100_000);
    for done in 1..=of {
        let instance = on(rng);
        let net = score_net(&learner.net);
        // At first the states come from random steps, because an untrained network reaches only a few kinds of them.
        imitate::episode(how, &instance, &learner.weights, (done > of / 10).then_some(&net), rng, &mut samples);
        samples.train(&mut learner.net, &mut adam, 20, 32, rng);
        judge(learner, done);
    }
}

fn rollouts(how: &Rollouts, of: usize, on: &mut Source<'_>, learner: &mut Learner<'_>, rng: &mut fastrand::Rng, judge: &mut Judge<'_>) {
    learner.net = mlp(&learner.best.1);
    let mut samples = Samples::new(10_000);
    let mut teacher = RolloutTeacher::new(how);
    let mut adam = Adam::new(&learner.net, 1e-3);
    for done in 1..=of {
        if done == of / 2 || done == of * 4 / 5 {
            adam = Adam::new(&learner.net, if done == of / 2 { 4e-4 } else { 1.5e-4 });
        }
        let instance = on(rng);
        let net = score_net(&learner.net);
        teacher.episode(&instance, &learner.weights, &net, rng, &mut samples);
        samples.train(&mut learner.net, &mut adam, 12, 64, rng);
        judge(learner, done);
    }
}

fn actor_critic(
    how: &ActorCritic,
    of: usize,
    on: &mut Source<'_>,
    learner: &mut Learner<'_>,
    rng: &mut fastrand::Rng,
    judge: &mut Judge<'_>,
) {
    if learner.best.0.is_finite() && learner.course.len() > 1 {
        learner.net = mlp(&learner.best.1);
    }
    let mut agent = ActorCriticAgent::new(learner.net.clone(), how, rng);
    let mut judged = 0;
    let every = (of / 16).max(1);
    while agent.updates < of {
        let instance = on(rng);
        agent.episode(&instance, &learner.weights, of, rng);
        while judged + every <= agent.updates {
            judged += every;
            learner.net = agent.actor.clone();
            judge(learner, judged);
        }
    }
    learner.net = agent.actor;
}

impl Learner<'_> {
    /// The mean of f relative to `cgs-greedy` over the validation set. The best weights so far are kept.
    fn validate(&mut self, stage: &'static str, done: usize) -> f64 {
        let net = score_net(&self.net);
        let ratio = |(instance, greedy): &(Instance, f64)| {
            let mut construction = Construction::of(Layout::empty(instance, self.weights), self.weights);
            construction.finish(&net, &Pass::default());
            super::worth(&construction, true) / greedy
        };
        let mean = self.validation.iter().map(ratio).sum::<f64>() / self.validation.len().max(1) as f64;
        if mean < self.best.0 {
            self.best = (mean, net);
        }
        self.course.push((stage, done, mean));
        mean
    }
}

impl std::fmt::Display for LearnedTraining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.own.len() {
            0 => write!(f, "generated call graphs, Bookinfo and Online Boutique on 4 to 300 generated nodes, ")?,
            own => write!(f, "generated call graphs and {own} of the user on 4 to 300 generated nodes, ")?,
        }
        for (n, stage) in self.stages.iter().enumerate() {
            let then = if n == 0 { "" } else { ", then " };
            match stage {
                Stage::Imitation(_, of) => write!(f, "{then}{of} episodes of imitation of cgs-search")?,
                Stage::ActorCritic(_, of) => write!(f, "{then}{of} updates of actor and critic")?,
                Stage::Rollouts(_, of) => write!(f, "{then}{of} episodes of rollouts")?,
            }
        }
        Ok(())
    }
}

/// The instances that are trained on: one in eight has more places, so that the shortlist of many places is trained too, and one in 24 so
/// many that each step ranks a part of them.
fn training_instances(own: &[CallGraph]) -> impl FnMut(&mut fastrand::Rng) -> Instance {
    let ranges = [InstanceRanges::training(), InstanceRanges::wide(), InstanceRanges::vast()];
    let [near, wide, vast] = ranges.map(|ranges| InstanceRanges { own: own.to_vec(), ..ranges });
    let mut drawn = 0_usize;
    move |rng| {
        drawn += 1;
        match drawn {
            n if n.is_multiple_of(24) => vast.draw(rng),
            n if n.is_multiple_of(8) => wide.draw(rng),
            _ => near.draw(rng),
        }
    }
}

/// The validation set: instances of the training's ranges from a seed of its own, with the value of `cgs-greedy`.
fn validation_set(weights: &Weights, own: &[CallGraph]) -> Vec<(Instance, f64)> {
    let mut rng = fastrand::Rng::with_seed(0x7a11_da7e);
    let mut draw = training_instances(own);
    let judged = |instance: Instance| {
        let greedy = Greedy::Groups.place(&instance, weights);
        let worth = greedy.value + greedy.unplaced.len() as f64;
        (instance, worth)
    };
    (0..48).map(|_| draw(&mut rng)).map(judged).collect()
}

fn score_net(net: &Mlp) -> ScoreNet {
    ScoreNet::new(net.sizes().to_vec(), net.params.clone())
        .unwrap_or_else(|| unreachable!("the networks in training have the sizes of a scorer"))
}

fn mlp(net: &ScoreNet) -> Mlp {
    Mlp::with(net.sizes(), net.params())
}
