//! Prints the losses of a digits run, one per line, and then the accuracy: what `cargo xtask conformance wasm` compares
//! between WebAssembly and this machine.

use firebrand_web::DigitsTask;

const PROGRAM: &[u8] = include_bytes!("../../firebrand/data/digits.pt2");
const EPOCHS: usize = 15;

fn main() -> Result<(), firebrand::Error> {
    let mut task = DigitsTask::new(PROGRAM, 0, 32, 5e-3)?;
    for _ in 0..EPOCHS * task.steps_per_epoch() {
        println!("{:.9}", task.step()?);
    }
    println!("accuracy {}", task.accuracy()?);
    Ok(())
}
