//! Detects the launcher of this process by the environment variables it sets.

use super::library::Library;
use crate::{Error, Result};

/// A launcher of MPI programs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    /// How many processes it says it started, if it says so.
    pub(super) size: Option<usize>,
    /// How many of them on this machine, if it says so.
    pub(super) local: Option<usize>,
    /// Names of its libraries, the best first.
    libraries: &'static [&'static str],
}

const OPEN_MPI: &[&str] = &["libmpi.so.40", "libmpi.40.dylib", "libmpi.so"];
/// The standard interface first, then MPICH's own, then Debian's name for it.
const MPICH: &[&str] = &["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12", "libmpi.12.dylib"];
const ANY: &[&str] = &["libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"];

impl Launcher {
    /// The launcher that set these variables; `None` if the process was started plainly.
    pub(super) fn from_env(get: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
        let number = |name: &str| get(name).and_then(|v| v.trim().parse().ok());
        if let Some(size) = number("OMPI_COMM_WORLD_SIZE") {
            let local = number("OMPI_COMM_WORLD_LOCAL_SIZE");
            return Some(Launcher { name: "mpirun of Open MPI", size: Some(size), local, libraries: OPEN_MPI });
        }
        if let Some(size) = number("PMI_SIZE") {
            return Some(Launcher {
                name: "a launcher with PMI (mpiexec of MPICH, srun)",
                size: Some(size),
                local: number("MPI_LOCALNRANKS").or_else(|| number("SLURM_NTASKS_PER_NODE")),
                libraries: MPICH,
            });
        }
        if get("PMIX_RANK").is_some() {
            let size = number("SLURM_NTASKS");
            let local = number("SLURM_NTASKS_PER_NODE");
            return Some(Launcher { name: "a launcher with PMIx", size, local, libraries: ANY });
        }
        None
    }

    /// Opens the first of its libraries that is there.
    pub(super) fn open(&self) -> Result<Library> {
        let mut tried = Vec::new();
        for name in self.libraries {
            match Library::open(name.as_ref()) {
                Ok(library) => return Ok(library),
                Err(e) => tried.push(format!("{name}: {e}")),
            }
        }
        Err(Error::NoLibrary { launcher: self.name.into(), tried })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_variables() {
        let of = |set: &[(&str, &str)]| {
            Launcher::from_env(|name| set.iter().find(|(k, _)| *k == name).map(|(_, v)| v.to_string()))
        };
        assert_eq!(of(&[]), None, "started plainly");
        assert_eq!(of(&[("SLURM_NTASKS", "4")]), None, "inside an allocation, but not by its launcher");
        let open_mpi = of(&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), ("PMIX_RANK", "0")])
            .expect("Open MPI");
        assert_eq!((open_mpi.size, open_mpi.local, open_mpi.libraries), (Some(4), Some(2), OPEN_MPI));
        let mpich = of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]).expect("MPICH");
        assert_eq!((mpich.size, mpich.libraries), (Some(2), MPICH));
        let slurm = of(&[("PMIX_RANK", "0"), ("SLURM_NTASKS", "8")]).expect("srun --mpi=pmix");
        assert_eq!((slurm.size, slurm.libraries), (Some(8), ANY));
    }
}
