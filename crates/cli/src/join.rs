//! What a run tells the daemon when it joins it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vswap_pager::config::{GroupLimits, Mapping, RamRange};
use vswap_pager::{Config, RunGroup, TierLimit};

/// What a run tells the daemon when it joins. The socket says who the run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    version: String,
    ram: RamRange,
    group: Option<Group>,
    run_dir: PathBuf,
    quiet: bool,
    pressure_file: Option<PathBuf>,
    evict_all_every: Option<Duration>,
}

/// The group that the user named, and the limits that the user gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    name: String,
    swap_max_bytes: Option<u64>,
    pool_max_bytes: Option<u64>,
    writeback: bool,
    tiers: Vec<TierLimit>,
}

impl Join {
    /// The message for a run with this configuration.
    pub fn new(config: &Config) -> Join {
        let given = |bytes: u64| (bytes != GroupLimits::NO_LIMIT).then_some(bytes);
        let group = config.group.as_ref().map(|group| Group {
            name: group.name.to_string(),
            swap_max_bytes: given(group.limits.swap_max_bytes),
            pool_max_bytes: given(group.limits.pool_max_bytes),
            writeback: group.limits.writeback,
            tiers: group.tiers.clone(),
        });
        Join {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ram: config.ram,
            group,
            run_dir: config.run_dir.clone(),
            quiet: config.quiet,
            pressure_file: config.pressure_file.clone(),
            evict_all_every: config.evict_all_every,
        }
    }

    /// The pager's configuration for the run of process `pid`. Errors are worded for people.
    pub fn config(&self, pid: u32) -> Result<Config, String> {
        let version = env!("CARGO_PKG_VERSION");
        if self.version != version {
            return Err(format!(
                "the daemon is of version {version} and the run of {}: start a daemon of the same version, or run \
                 with --no-daemon",
                self.version
            ));
        }
        let group = self.group.as_ref().map(|group| {
            let name = group.name.parse();
            Ok::<_, String>(RunGroup {
                name: name.map_err(|error| format!("{}: {error}", group.name))?,
                limits: GroupLimits {
                    swap_max_bytes: group.swap_max_bytes.unwrap_or(GroupLimits::NO_LIMIT),
                    pool_max_bytes: group.pool_max_bytes.unwrap_or(GroupLimits::NO_LIMIT),
                    writeback: group.writeback,
                    ..GroupLimits::default()
                },
                tiers: group.tiers.clone(),
            })
        });
        Ok(Config {
            ram: self.ram,
            pool_limit: None,
            // The other mapping needs --swap, and the daemon owns --swap.
            mapping: Mapping::Virtual,
            group: group.transpose()?,
            root_pid: pid,
            run_dir: self.run_dir.clone(),
            quiet: self.quiet,
            pressure_file: self.pressure_file.clone(),
            evict_all_every: self.evict_all_every,
            sample_every: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            ram: RamRange::fixed(64 << 20),
            pool_limit: None,
            mapping: Mapping::Virtual,
            group: Some(RunGroup {
                name: "web/jobs".parse().expect("a good name"),
                limits: GroupLimits {
                    swap_max_bytes: 1 << 20,
                    ..GroupLimits::default()
                },
                tiers: vec![TierLimit {
                    tier: "fast".parse().expect("a good name"),
                    max_bytes: 0,
                }],
            }),
            root_pid: 7,
            run_dir: "/run/vswap-0/run-7-x".into(),
            quiet: true,
            pressure_file: None,
            evict_all_every: Some(Duration::from_millis(5)),
            sample_every: None,
        }
    }

    #[test]
    fn the_daemon_hears_what_the_run_was_told() {
        let told = config();
        let text = serde_json::to_string(&Join::new(&told)).expect("JSON");
        let heard: Join = serde_json::from_str(&text).expect("JSON");
        let heard = heard.config(7).expect("the same version");
        assert_eq!(format!("{heard:?}"), format!("{told:?}"));
    }

    #[test]
    fn other_versions_and_bad_groups_are_refused() {
        let join = Join::new(&config());
        let older = Join {
            version: "0.0.0".to_owned(),
            ..join.clone()
        };
        let error = older.config(7).expect_err("another version");
        assert!(
            error.contains("0.0.0") && error.contains("--no-daemon"),
            "{error}"
        );
        let mut unnamed = join;
        if let Some(group) = &mut unnamed.group {
            group.name = "//".to_owned();
        }
        assert!(unnamed.config(7).expect_err("no name").starts_with("//: "));
    }
}
