//! A PostgreSQL server of a test's own: made in a directory of its own, started on a free port of
//! this machine, killed and started again as the test wants, and gone at its end.
//!
//! The server refuses to run as root; root therefore lends it to the user `postgres` or `nobody`.
//! Where there is no PostgreSQL, tests fail and say what to install.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use postgres::{Client, NoTls};

/// How long a server may take to start, to recover or to end, on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A server, and its data.
pub struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// Whom it runs as, if that is somebody else.
    user: Option<(u32, u32)>,
    address: SocketAddr,
    process: Option<Child>,
}

impl Server {
    /// Makes one and starts it.
    pub fn start() -> Self {
        let programs = programs().unwrap_or_else(|| {
            panic!(
                "no PostgreSQL server on this machine: `initdb` is not where `pg_config --bindir` \
                 says, not under /usr/lib/postgresql, not in PATH; install the package \
                 `postgresql`, as `cargo xtask test` does, or leave out the feature `postgres`"
            )
        });
        let folder = tempfile::tempdir().unwrap();
        let user = is_root().then(lent_to);
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let address = free_address();
        let mut server = Self { folder, programs, user, address, process: None };
        let data = server.data();
        let mut make = server.program("initdb");
        make.arg("--pgdata").arg(&data);
        make.args(["--username=tidegate", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        make.args(["--no-sync", "--no-instructions"]);
        let made = make.output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.restart();
        server
    }

    /// Starts it, after it was killed. With the same port, unless somebody else has it now.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let until = Instant::now() + PATIENCE;
        loop {
            self.process = Some(self.spawn());
            while self.process.as_mut().unwrap().try_wait().unwrap().is_none() {
                if self.try_client("postgres").is_ok() {
                    return;
                }
                assert!(Instant::now() < until, "it does not start: {}", self.log());
                thread::sleep(LOOK_EVERY);
            }
            // What is left of one that was killed may be in the way for a moment.
            self.process = None;
            assert!(Instant::now() < until, "it does not start: {}", self.log());
            thread::sleep(LOOK_EVERY);
        }
    }

    fn spawn(&self) -> Child {
        let port = self.address.port().to_string();
        let mut start = self.program("postgres");
        start.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        start.args(["-h", "127.0.0.1", "-p", &port]);
        for setting in [
            "fsync=on",
            // What it is by default may be anything; sessions say what they want.
            "synchronous_commit=off",
            "shared_buffers=32MB",
            "max_connections=60",
            // Nothing is left in the shared memory of the machine when it is killed.
            "dynamic_shared_memory_type=mmap",
            "restart_after_crash=on",
        ] {
            start.args(["-c", setting]);
        }
        let log = fs::File::options().create(true).append(true).open(self.log_file()).unwrap();
        start.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// Kills all of it at once, as the end of its machine would. Starts again by
    /// [`restart`](Self::restart).
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let children = children_of(process.id());
        process.kill().unwrap();
        process.wait().unwrap();
        for child in &children {
            signal("KILL", *child);
        }
        let until = Instant::now() + PATIENCE;
        while children.iter().any(|child| is_there(*child)) {
            assert!(Instant::now() < until, "what was killed does not end");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Stands all of it still, or lets it go on: nothing is answered, and nothing is closed.
    pub fn freeze(&self, freeze: bool) {
        let server = self.process.as_ref().unwrap().id();
        for process in children_of(server).into_iter().chain([server]) {
            signal(if freeze { "STOP" } else { "CONT" }, process);
        }
    }

    /// Processes that serve connections which say that they are this application's.
    pub fn serving(&self, application: &str) -> Vec<u32> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
        let rows = self.client("postgres").query(sql, &[&application]).unwrap();
        rows.iter().map(|row| u32::try_from(row.get::<_, i32>(0)).unwrap()).collect()
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// An empty database by this name.
    pub fn create(&self, database: &str) {
        let mut client = self.client("postgres");
        client.batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    }

    /// Where to find a database.
    pub fn url(&self, database: &str) -> String {
        url_at(self.address, database)
    }

    /// A client of a database.
    pub fn client(&self, database: &str) -> Client {
        self.try_client(database).unwrap()
    }

    fn try_client(&self, database: &str) -> Result<Client, postgres::Error> {
        Client::connect(&self.url(database), NoTls)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env("LC_ALL", "C");
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        for child in children_of(process.id()) {
            signal("CONT", child);
        }
        signal("CONT", process.id());
        // At once, and with its shared memory given back.
        signal("QUIT", process.id());
        let until = Instant::now() + PATIENCE;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        let _ended = process.kill();
        let _reaped = process.wait();
    }
}

/// Where to find a database behind an address.
pub fn url_at(address: SocketAddr, database: &str) -> String {
    format!("postgresql://tidegate:secret@{address}/{database}?application_name=test")
}

/// The folder with `initdb` and `postgres`; the newest, if there are several.
fn programs() -> Option<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output();
    let told = told.ok().filter(|told| told.status.success());
    let told = told.map(|told| PathBuf::from(String::from_utf8_lossy(&told.stdout).trim()));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let has_server = |folder: &PathBuf| {
        ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
    };
    told.into_iter().chain(versions.into_iter().rev()).chain(path).find(has_server)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// User and group that the server runs as, if this program is root's.
fn lent_to() -> (u32, u32) {
    let number = |option: &str, name: &str| {
        let told = Command::new("id").args([option, name]).stderr(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&told.stdout).trim().parse::<u32>().ok()
    };
    let of = |name: &&str| Some((number("-u", name)?, number("-g", name)?));
    ["postgres", "nobody"].iter().find_map(of).expect("a user `postgres` or `nobody`")
}

fn free_address() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

/// Sends `STOP`, `CONT` or another signal to a process of a server.
pub fn signal(name: &str, process: u32) {
    let _gone = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Whether there is such a process, and it has not ended.
fn is_there(process: u32) -> bool {
    stat_of(&Path::new("/proc").join(process.to_string())).is_some_and(|(state, _)| state != "Z")
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| stat_of(&process.path()).is_some_and(|(_, of)| of == parent))
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}

/// State and parent of a process.
fn stat_of(process: &Path) -> Option<(String, u32)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name in brackets may hold anything.
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace();
    Some((behind.next()?.to_owned(), behind.next()?.parse().ok()?))
}
