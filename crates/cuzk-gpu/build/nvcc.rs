//! The compiler, and units that it compiles again only if their command, or a file that
//! they read, has changed: one takes half a minute and more for each architecture.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;
use std::{env, fs, thread};

/// A CUDA compiler.
pub(crate) struct Nvcc {
    pub(crate) path: PathBuf,
}

/// A source and where what is made of it goes.
pub(crate) struct Unit {
    source: PathBuf,
    /// The command as text. Written just before the compiler starts: what is younger
    /// may not have been read.
    command: PathBuf,
    object: PathBuf,
    /// The files that it read, as the compiler tells make.
    read: PathBuf,
}

impl Unit {
    pub(crate) fn new(source: PathBuf, folder: &Path) -> Self {
        let name = source.file_stem().expect("a source has a name");
        let file = |ending: &str| folder.join(name).with_extension(ending);
        Self {
            command: file("command"),
            object: file("o"),
            read: file("d"),
            source,
        }
    }

    fn is_fresh(&self, command: &str) -> bool {
        let began = modified(&self.command);
        let read = fs::read_to_string(&self.read).unwrap_or_default();
        let Some((_, read)) = read.split_once(": ") else {
            return false;
        };
        let mut read = read.split_whitespace().filter(|word| *word != "\\");
        self.object.is_file()
            && fs::read_to_string(&self.command).is_ok_and(|last| last == command)
            && read.all(|path| modified(Path::new(path)).is_some_and(|at| Some(at) < began))
    }
}

impl Nvcc {
    /// A name without a folder is looked for on the path.
    pub(crate) fn new(path: PathBuf) -> Self {
        let is_name = path.components().count() == 1;
        let folders = env::var_os("PATH").filter(|_| is_name).unwrap_or_default();
        let mut paths = env::split_paths(&folders).map(|folder| folder.join(&path));
        Self {
            path: paths.find(|path| path.is_file()).unwrap_or(path),
        }
    }

    /// Compiles what is not fresh, several at once, and puts all into one archive.
    pub(crate) fn archive(&self, units: &[Unit], flags: &[String], archive: &Path) {
        let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
        let jobs = jobs.unwrap_or(1_usize);
        let waiting = Mutex::new(units.iter());
        let next = || {
            waiting
                .lock()
                .expect("the lock is held for no panic")
                .next()
        };
        thread::scope(|scope| {
            for _ in 0..jobs.min(units.len()) {
                scope.spawn(|| {
                    while let Some(unit) = next() {
                        self.compile(unit, flags, jobs.div_ceil(units.len()));
                    }
                });
            }
        });
        // An archive keeps members that are not named again.
        let _ = fs::remove_file(archive);
        let objects = units.iter().map(|unit| &unit.object);
        run(Command::new(&self.path)
            .arg("--lib")
            .arg("-o")
            .arg(archive)
            .args(objects));
    }

    /// Compiles one unit if it is not fresh, and says where its object lies.
    pub(crate) fn object<'a>(&self, unit: &'a Unit, flags: &[String]) -> &'a Path {
        self.compile(unit, flags, 1);
        &unit.object
    }

    fn compile(&self, unit: &Unit, flags: &[String], threads: usize) {
        let mut command = Command::new(&self.path);
        command
            .args(flags)
            .arg("-c")
            .arg(&unit.source)
            .arg("-o")
            .arg(&unit.object);
        command.arg("-MD").arg("-MF").arg(&unit.read);
        let text = format!("{command:?}");
        if unit.is_fresh(&text) {
            return;
        }
        let _ = fs::remove_file(&unit.object);
        fs::write(&unit.command, text).expect("cargo's folder can be written");
        run(command.arg(format!("--threads={threads}")));
    }

    /// What the compiler prints for one argument.
    pub(crate) fn says(&self, argument: &str) -> String {
        let output = Command::new(&self.path).arg(argument).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        assert!(
            output.status.success(),
            "{} {argument}: {}",
            self.path.display(),
            output.status
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The toolkit's version, such as `13.0`.
    pub(crate) fn release(&self) -> String {
        let text = self.says("--version");
        let after = text.split_once("release ").map_or("", |(_, after)| after);
        let release = after.split(',').next().unwrap_or_default();
        release.to_owned()
    }

    /// Where the runtime library of this toolkit lies; the linker knows other places.
    pub(crate) fn library_folder(&self) -> Option<PathBuf> {
        let real = fs::canonicalize(&self.path).ok()?;
        let root = real.parent()?.parent()?;
        let targets = format!("targets/{}-linux/lib", env::consts::ARCH);
        let folders = ["lib64", "lib", &targets, "targets/sbsa-linux/lib"].map(|at| root.join(at));
        folders
            .into_iter()
            .find(|folder| folder.join("libcudart_static.a").is_file())
    }
}

fn run(command: &mut Command) {
    let status = command.status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
