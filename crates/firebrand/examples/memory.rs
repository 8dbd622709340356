//! Memory use of a training step, and four ways to reduce it. Prints the peak of each.

use firebrand::autograd::{GraphView, checkpoint, save_compressed};
use firebrand::prelude::*;
use firebrand::{memory_stats, reset_peak_memory, save_on_disk};

pub(crate) fn main() -> Result<()> {
    let x = Tensor::full([1 << 18], 0.5, DType::F32).requires_grad_();
    let layers = |x: &Tensor| (0..12).fold(x.clone(), |y, _| y.sin());

    // What each node saves.
    let y = layers(&x);
    let listing = GraphView::of(&[&y]).named("x", &x).list();
    assert!(listing.ends_with("13 nodes, 12582912 B saved\n"), "{listing}");
    drop(y);

    let measure = |what: &str, forward: &dyn Fn() -> Result<Tensor>| -> Result<usize> {
        x.zero_grad();
        reset_peak_memory();
        let before = memory_stats().live;
        forward()?.sum().backward();
        let peak = (memory_stats().peak - before) >> 10;
        println!("{what:<12} {peak:>6} KiB at the peak");
        Ok(peak)
    };
    let plain = measure("plain", &|| Ok(layers(&x)))?;
    let compressed = measure("compressed", &|| {
        let _scope = save_compressed(DType::BF16)?;
        Ok(layers(&x))
    })?;
    let recomputed = measure("checkpoint", &|| {
        let piece = |t: &[Tensor]| Ok(vec![t[0].sin().sin().sin().sin()]);
        let mut y = x.clone();
        for _ in 0..3 {
            y = checkpoint(piece, &[&y], &Default::default())?.remove(0);
        }
        Ok(y)
    })?;
    let on_disk = measure("on disk", &|| {
        let _scope = save_on_disk(std::env::temp_dir()).map_err(Error::user)?;
        Ok(layers(&x))
    })?;
    assert!(compressed < plain && recomputed < plain && on_disk < compressed);
    Ok(())
}
