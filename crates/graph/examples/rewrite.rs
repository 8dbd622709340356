//! Reads exported programs and writes them again: `rewrite IN.pt2 OUT.pt2 [IN.pt2 OUT.pt2 …]`.

use firebrand_graph::{ExportedProgram, Result};

fn main() -> Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    for pair in paths.chunks_exact(2) {
        ExportedProgram::load(&pair[0])?.save(&pair[1])?;
    }
    Ok(())
}
