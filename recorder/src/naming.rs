//! File names of recordings, chosen so that files of different ranks and processes never collide.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use highwater_snapshots::rotation::with_part;

/// Rank and world size of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Rank, from 0; `None` if no launcher has set it.
    pub rank: Option<u32>,
    /// Number of ranks; `None` if no launcher has set it.
    pub world_size: Option<u32>,
}

/// Environment variables in which launchers pass rank and world size, for torchrun and compatible launchers, Open MPI,
/// MPICH and Intel MPI, MVAPICH, and Slurm. The first pair with a rank is used.
const LAUNCHERS: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

impl Rank {
    /// Reads rank and world size from the environment variables of this process.
    pub fn of_process() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| variable(name).and_then(|value| value.trim().parse().ok());
        let pairs = LAUNCHERS.iter().map(|(rank, size)| Self { rank: number(rank), world_size: number(size) });
        pairs.into_iter().find(|found| found.rank.is_some()).unwrap_or_default()
    }

    /// Returns the rank, unless there is only one.
    fn among_others(self) -> Option<u32> {
        self.rank.filter(|_| self.world_size.is_none_or(|size| size > 1))
    }
}

/// Returns `path` with the rank in its name, such as `run.rank3.snap`. Returns it unchanged if the process has no rank
/// or is the only one, or if the name already ends in the rank.
pub fn for_rank(path: &Path, rank: Rank) -> PathBuf {
    let Some(rank) = rank.among_others() else { return path.to_owned() };
    let part = format!("rank{rank}");
    let says_it = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(&format!(".{part}")));
    if says_it { path.to_owned() } else { with_part(path, &part) }
}

/// Returns `path` with the id of this process in its name (`run.pid123.snap`), for several processes with the same
/// path.
pub fn of_process(path: &Path) -> PathBuf {
    with_part(path, &format!("pid{}", std::process::id()))
}

/// Returns a path for a further file of this process, which has executed another program: `run.pid123.2.snap`.
pub fn of_process_again(path: &Path, number: u32) -> PathBuf {
    with_part(&of_process(path), &number.to_string())
}

/// Returns a unique path in `folder`, made of program, host, time in seconds, process id and rank.
pub(crate) fn in_folder(folder: &Path, host: &str, rank: Rank) -> PathBuf {
    let program = std::env::args_os().next().map(PathBuf::from);
    let program = program.as_deref().and_then(Path::file_stem).unwrap_or(OsStr::new("program")).to_string_lossy();
    let safe = |text: &str| -> String {
        text.chars().map(|c| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' }).collect()
    };
    let rank = rank.rank.map_or(String::new(), |rank| format!(".rank{rank}"));
    // Restarted containers reuse process ids, hence the time.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (program, host, pid) = (safe(&program), safe(host), std::process::id());
    folder.join(format!("{program}.{host}.{since_epoch}.{pid}{rank}.snap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_launcher_that_names_a_rank_counts() {
        let of = |set: &[(&str, &str)]| {
            Rank::from_variables(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), Rank::default());
        let torchrun = of(&[("RANK", "3"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]);
        assert_eq!(torchrun, Rank { rank: Some(3), world_size: Some(8) });
        assert_eq!(of(&[("SLURM_PROCID", "5"), ("SLURM_NTASKS", "64")]).rank, Some(5));
        assert_eq!(of(&[("PMI_RANK", "x"), ("OMPI_COMM_WORLD_RANK", "1")]).rank, Some(1));
    }

    #[test]
    fn each_rank_has_a_file_of_its_own_and_a_lone_process_the_one_it_names() {
        let path = Path::new("runs/step.snap");
        let rank = |rank, world_size| Rank { rank: Some(rank), world_size };
        assert_eq!(for_rank(path, rank(3, Some(8))), Path::new("runs/step.rank3.snap"));
        assert_eq!(for_rank(path, rank(3, None)), Path::new("runs/step.rank3.snap"));
        assert_eq!(for_rank(path, rank(0, Some(1))), path);
        assert_eq!(for_rank(Path::new("step.rank3.snap"), rank(3, Some(8))), Path::new("step.rank3.snap"));
        assert_eq!(for_rank(Path::new("step.rank3.snap"), rank(13, Some(20))), Path::new("step.rank3.rank13.snap"));
        assert_eq!(for_rank(path, Rank::default()), path);
    }
}
