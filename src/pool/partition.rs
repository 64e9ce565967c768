//! What one server process gets of numbers that are set for a whole component.
//!
//! # Source
//! Siebel shared connection pooling: the limits are set per component, the connections are not
//! shared across processes, so each of `MaxMTServers` processes gets its part of `MaxTasks` and
//! `MaxSharedDbConns`. The source divides evenly and says nothing about a remainder; here the
//! first processes get one more each, so that the sum is exact and nobody gets none.

use crate::pool::settings::{PoolSettings, Sharing, check_sharing};
use crate::setting::{SettingError, in_range};

/// A component's tasks and connections, divided over its server processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    tasks: usize,
    servers: usize,
    sharing: Sharing,
}

/// What one server process gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// Sessions at a time.
    pub tasks: usize,
    /// Most shared connections; `None` if nothing is shared.
    pub connections_max: Option<usize>,
    /// Shared connections that stay; `None` if nothing is shared.
    pub connections_min: Option<usize>,
    /// Most sessions that share one connection when all tasks are in use.
    pub sessions_per_connection: usize,
}

impl Partition {
    /// Checks a component's numbers: `max_tasks` sessions over `max_servers` processes, with
    /// `max_shared` and `min_shared` as in [`PoolSettings`].
    ///
    /// # Errors
    /// [`SettingError`] with setting, value and allowed range: tasks and servers must be 1 or
    /// more, no process may be left without a task or a connection, and `max_shared` is at most
    /// `max_tasks − 1`.
    pub fn new(
        max_tasks: i64,
        max_servers: i64,
        max_shared: i64,
        min_shared: i64,
    ) -> Result<Self, SettingError> {
        let sharing = check_sharing(max_shared, min_shared, Some(max_tasks))?;
        let tasks = positive("max_tasks (MaxTasks)", max_tasks, i64::MAX)?;
        let servers_max = match sharing {
            Sharing::Pooled { .. } => max_tasks.min(max_shared),
            Sharing::Off => max_tasks,
        };
        let servers = positive("max_servers (MaxMTServers)", max_servers, servers_max)?;
        Ok(Self { tasks, servers, sharing })
    }

    /// How many server processes there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// What server `server` gets, counted from 0.
    ///
    /// A minimum smaller than the number of servers is rounded up to one connection each: a pool
    /// that shares keeps at least one.
    ///
    /// # Panics
    /// If there is no such server.
    #[must_use]
    pub fn share(&self, server: usize) -> Share {
        assert!(server < self.servers, "server {server} of {}", self.servers);
        let part = |whole: usize| whole / self.servers + usize::from(server < whole % self.servers);
        let tasks = part(self.tasks);
        match self.sharing {
            Sharing::Off => Share {
                tasks,
                connections_max: None,
                connections_min: None,
                sessions_per_connection: 1,
            },
            Sharing::Pooled { max, min } => Share {
                tasks,
                connections_max: Some(part(max)),
                connections_min: Some(part(min).max(1)),
                sessions_per_connection: tasks.div_ceil(part(max)),
            },
        }
    }

    /// Settings for the pool of server `server`, from 0, otherwise as `defaults`.
    ///
    /// # Panics
    /// If there is no such server.
    #[must_use]
    pub fn settings(&self, server: usize, defaults: &PoolSettings) -> PoolSettings {
        let share = self.share(server);
        let sharing = match (share.connections_max, share.connections_min) {
            (Some(max), Some(min)) => Sharing::Pooled { max, min },
            _ => Sharing::Off,
        };
        PoolSettings { sharing, ..defaults.clone() }
    }
}

fn positive(setting: &'static str, value: i64, max: i64) -> Result<usize, SettingError> {
    let value = in_range(setting, value, 1, max)?;
    usize::try_from(value).map_err(|_| SettingError::new(setting, value, "what fits in memory"))
}

#[cfg(test)]
mod tests {
    use super::Partition;
    use crate::pool::settings::{PoolSettings, Sharing};

    #[test]
    fn the_example_of_the_source_comes_out() {
        let partition = Partition::new(500, 5, 50, 50).unwrap();
        for server in 0..5 {
            let share = partition.share(server);
            assert_eq!(share.tasks, 100);
            assert_eq!(share.connections_max, Some(10));
            assert_eq!(share.connections_min, Some(10));
            assert_eq!(share.sessions_per_connection, 10);
            let settings = partition.settings(server, &PoolSettings::default());
            assert_eq!(settings.sharing(), Sharing::Pooled { max: 10, min: 10 });
        }
    }

    #[test]
    fn a_remainder_goes_to_the_first_and_the_sum_is_exact() {
        let partition = Partition::new(500, 4, 50, 50).unwrap();
        let parts: Vec<_> =
            (0..4).map(|server| partition.share(server).connections_max.unwrap()).collect();
        assert_eq!(parts, [13, 13, 12, 12]);
        for (tasks, servers, max, min) in [(7, 3, 5, 2), (100, 99, 99, 1), (4097, 64, 4096, 65)] {
            let partition = Partition::new(tasks, servers, max, min).unwrap();
            let shares: Vec<_> = (0..partition.servers()).map(|s| partition.share(s)).collect();
            let connections = shares.iter().map(|s| s.connections_max.unwrap());
            assert_eq!(connections.clone().sum::<usize>(), usize::try_from(max).unwrap());
            assert!(connections.min().unwrap() > 0);
            let all_tasks = shares.iter().map(|s| s.tasks).sum::<usize>();
            assert_eq!(all_tasks, usize::try_from(tasks).unwrap());
            assert!(shares.iter().all(|s| s.connections_min.unwrap() > 0));
            assert!(shares.iter().all(|s| s.connections_min <= s.connections_max));
        }
    }

    #[test]
    fn without_sharing_only_tasks_are_divided() {
        let share = Partition::new(10, 4, -1, -1).unwrap().share(0);
        assert_eq!((share.tasks, share.connections_max), (3, None));
        assert_eq!(share.sessions_per_connection, 1);
    }

    #[test]
    fn numbers_that_leave_a_server_with_nothing_are_refused_by_name() {
        for (tasks, servers, max, min, part) in [
            (500, 0, 50, 50, "max_servers (MaxMTServers): \"0\""),
            (500, -3, 50, 50, "max_servers (MaxMTServers): \"-3\""),
            (500, 51, 50, 50, "\"51\" is not allowed, it takes 1 to 50"),
            (3, 4, -1, -1, "\"4\" is not allowed, it takes 1 to 3"),
            (0, 1, 50, 50, "max_tasks"),
            (500, 5, 500, 50, "1 to 499"),
            (500, 5, 0, 0, "\"0 and 0\""),
            (500, 5, -2, -2, "\"-2 and -2\""),
            (500, 5, 50, 51, "\"50 and 51\""),
            (500, 5, 50, -2, "\"50 and -2\""),
        ] {
            let error = Partition::new(tasks, servers, max, min).unwrap_err().to_string();
            assert!(error.contains(part), "{part:?} is missing in {error:?}");
        }
    }
}
