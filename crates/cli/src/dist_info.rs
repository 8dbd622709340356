//! `firebrand dist-info`: which launcher and MPI library this process has, and whether processes can add numbers together.

use crate::refusal::{Done, Refusal, say};
use crate::train::JoinOptions;
use firebrand::prelude::*;

/// Arguments of `firebrand dist-info`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    world: JoinOptions,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Joins the world, tests a reduction, and says what was found.
pub(crate) fn run(options: &Options) -> Done {
    let world = options.world.join()?;
    let hosts = world.gather_text(world.host()).map_err(Refusal::because)?;
    // Whole numbers, whose sum has one right value.
    let n = 1 << 16;
    let own = Tensor::arange(0, n, 1, DType::F64) + world.rank() as f64;
    let began = std::time::Instant::now();
    let sum = world.all_reduce(&own).map_err(Refusal::because)?;
    let seconds = began.elapsed().as_secs_f64();
    let (size, ranks) = (world.size() as f64, (0..world.size()).sum::<usize>() as f64);
    let right = sum.try_to_vec::<f64>()?.iter().enumerate().all(|(k, v)| *v == size * k as f64 + ranks);
    if !right {
        world.fail("the sum over all ranks is wrong");
        return Err(Refusal::because(format!("rank {}: the sum over all ranks is wrong", world.rank())));
    }
    if !world.is_main() {
        return Ok(());
    }
    let launcher = firebrand::dist::launcher();
    if options.json {
        let value = serde_json::json!({
            "schema": "firebrand.dist_info/1", "launcher": launcher, "library": world.engine(), "processes": world.size(),
            "hosts": hosts, "reduction": {"bytes": n * 8, "seconds": seconds},
        });
        return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
    }
    say!(
        "launcher      {}",
        launcher.as_deref().unwrap_or("none: started as one process; try mpirun -n 2 firebrand dist-info")
    )?;
    say!("library       {}", world.engine())?;
    say!("processes     {}", world.size())?;
    for (rank, host) in hosts.iter().enumerate().filter(|(_, h)| !h.is_empty()) {
        say!("              rank {rank} on {host}")?;
    }
    Ok(say!("reduction     right, {} KiB in {:.2} ms", n * 8 / 1024, 1e3 * seconds)?)
}
