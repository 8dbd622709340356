//! Deep Q-learning in a corridor: the exit is far, a trap is near. Replay memory and a target network.

use firebrand::nn::layers::{Linear, ReLU, Sequential};
use firebrand::nn::losses::{Loss, SmoothL1Loss};
use firebrand::nn::sequential;
use firebrand::optim::{Adam, AdamOptions, Optimizer};
use firebrand::prelude::*;
use firebrand::random::Generator;

/// Number of positions in the corridor: the trap is at the left end, the exit at the right end.
const PLACES: usize = 8;
const START: usize = 2;
const DISCOUNT: f64 = 0.95;

/// One step: position, action (0 left, 1 right), reward, next position unless the episode ends.
type Memory = (usize, usize, f32, Option<usize>);

fn walk(place: usize, action: usize) -> (f32, Option<usize>) {
    match (place, action) {
        (1, 0) => (0.1, None),
        (p, 1) if p + 1 == PLACES - 1 => (1.0, None),
        (p, 0) => (0.0, Some(p - 1)),
        (p, _) => (0.0, Some(p + 1)),
    }
}

/// Positions as one-hot rows.
fn rows(places: impl IntoIterator<Item = usize>) -> Tensor {
    let places: Vec<i64> = places.into_iter().map(|p| p as i64).collect();
    Tensor::new(&places).one_hot(PLACES as i64).float()
}

/// The value of the best action at the start after this many episodes, and whether the greedy policy finds the exit.
pub(crate) fn run(episodes: usize) -> Result<(f64, bool)> {
    manual_seed(0);
    let network = || sequential![Linear::new(PLACES, 24), ReLU::new(), Linear::new(24, 2)];
    let (model, target): (Sequential, Sequential) = (network(), network());
    target.load_state_dict(&model.state_dict(), true)?;
    let mut adam = Adam::new(model.parameters(), AdamOptions { lr: 1e-2, ..Default::default() })?;
    let mut dice = Generator::new(1);
    let mut memory: Vec<Memory> = Vec::new();
    let best = |place: usize| {
        no_grad(|| Ok::<_, Error>(model.try_call(&rows([place]))?.argmax(Some(1), false).item::<i64>() as usize))
    };
    for episode in 0..episodes {
        let explore = (1.0 - episode as f64 / (0.7 * episodes as f64)).max(0.05);
        let mut place = Some(START);
        for _ in 0..40 {
            let Some(here) = place else { break };
            let action = if dice.uniform_f64() < explore { dice.random() as usize % 2 } else { best(here)? };
            let (reward, next) = walk(here, action);
            memory.push((here, action, reward, next));
            place = next;
        }
        let batch: Vec<Memory> = (0..32).map(|_| memory[dice.random() as usize % memory.len()]).collect();
        let column = |f: &dyn Fn(&Memory) -> f32| Tensor::new(&batch.iter().map(f).collect::<Vec<f32>>());
        let actions = Tensor::new(&batch.iter().map(|m| m.1 as i64).collect::<Vec<i64>>()).unsqueeze(1);
        let goal = no_grad(|| {
            let ahead = target.try_call(&rows(batch.iter().map(|m| m.3.unwrap_or(0))))?.amax([1], false);
            let goes_on = column(&|m| f32::from(u8::from(m.3.is_some())));
            Ok::<_, Error>(column(&|m| m.2) + ahead * goes_on * DISCOUNT)
        })?;
        let worth = model.try_call(&rows(batch.iter().map(|m| m.0)))?.gather(1, &actions).squeeze_dim(1);
        adam.zero_grad();
        SmoothL1Loss::new().loss(&worth, &goal)?.backward();
        adam.step()?;
        if episode % 20 == 0 {
            target.load_state_dict(&model.state_dict(), true)?;
        }
    }
    let mut place = Some(START);
    for _ in 0..PLACES {
        let Some(here) = place else { break };
        let action = best(here)?;
        let (reward, next) = walk(here, action);
        if reward == 1.0 {
            let worth = no_grad(|| model.try_call(&rows([START])))?.max().item::<f32>();
            return Ok((worth.into(), true));
        }
        place = next;
    }
    Ok((0.0, false))
}

pub(crate) fn main() -> Result<()> {
    let (worth, out) = run(600)?;
    println!("the start is worth {worth:.3}; {}", if out { "the way out was found" } else { "trapped" });
    assert!(out);
    Ok(())
}
